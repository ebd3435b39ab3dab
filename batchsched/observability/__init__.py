"""Metrics, logs, session history and the HTTP server (layer 10)."""
