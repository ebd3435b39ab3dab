"""The anytime improvement of a tiered solution: a large-neighbourhood search over subsets of the gangs."""
