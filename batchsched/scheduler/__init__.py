"""Floor 9: the scheduler loop, binding cycles, and the application that connects all parts."""
