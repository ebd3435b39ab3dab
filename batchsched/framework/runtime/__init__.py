"""The plugin runtime: calls plugins at each extension point, checks and caches their results."""
