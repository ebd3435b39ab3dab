"""What operators see over HTTPS: health, metrics, and what the scheduler knows, for whoever the cluster lets in."""
