"""The node-level model for small sessions: every tier proved, preferred levels and packing settled."""
