"""The aggregated model for large sessions: gangs are chosen over pools and domains, then realised on nodes."""
