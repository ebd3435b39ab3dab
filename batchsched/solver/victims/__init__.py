"""Victims: the least costly set of running gangs whose eviction makes room for a pending one."""
