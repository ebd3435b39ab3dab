"""The improvement of a solution: a large-neighbourhood search that places subsets of the gangs again."""
