"""Floor 7: sessions over a followed cluster: watch events in, decisions out."""
