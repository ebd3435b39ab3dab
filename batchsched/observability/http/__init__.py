"""The HTTPS server: health, metrics, and the state of the scheduler, for users that the cluster authorizes."""
