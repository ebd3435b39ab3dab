"""Selection of gangs in a strict order, and pod by pod."""
