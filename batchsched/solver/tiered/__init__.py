"""The tiered solve for large sessions: choose gangs, count pods by node pool, then assign pods to nodes."""
