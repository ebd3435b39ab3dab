"""Floor 9: metrics, logs, session history and the HTTP server."""
