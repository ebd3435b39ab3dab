"""Victims: the least costly set of running gangs to evict for a pending one."""
