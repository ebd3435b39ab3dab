"""Plugins of one site: drivers that are new enough, and nodes that belong to a team."""
