"""Joint selection: the problem for the solver, and the proposal that it returns."""
