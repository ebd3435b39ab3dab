"""A real API server: pods bound a second, beside kube-scheduler and the floor of binding alone, in one run."""

from bench.cluster.matrix import main

__all__ = ["main"]
