"""Scheduler extenders: web services that filter and score nodes."""
