"""The interface to OR-Tools: sparse linear models, integer solutions and relaxations. No other package imports it."""
