"""The scheduling loop, the binding cycles, and the application that connects all parts (layer 9)."""
