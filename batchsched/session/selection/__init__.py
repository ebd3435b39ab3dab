"""Selection: the strategies that choose which gangs a session places: jointly, in order, or pod by pod."""
