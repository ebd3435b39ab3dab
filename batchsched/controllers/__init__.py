"""The controllers for status, Events, evictions, stale gangs and overdue assumed pods (layer 8).

Writes of status and Events wait while pods are being bound.
"""
