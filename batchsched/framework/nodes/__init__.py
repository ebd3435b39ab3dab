"""The node and pod tables that plugins read."""
