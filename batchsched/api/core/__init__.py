"""Core Kubernetes objects as frozen values: pods, nodes, volumes, and what they consist of."""
