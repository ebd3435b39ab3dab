"""Floor 10: metrics, logs, session history and the HTTP server."""
