"""Victims: the least costly set of running gangs that makes room for one that waits."""
