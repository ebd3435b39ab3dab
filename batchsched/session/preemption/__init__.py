"""Victims: who has to leave for gangs that found no room, by priority or by right, and what is kept for them.

`tenants` says who runs and what it costs that they leave, `claims` who may take from whom, `clearing` makes room.
"""
