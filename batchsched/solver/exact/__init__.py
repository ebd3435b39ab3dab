"""The node-level model for small sessions: every tier proved, then preferred levels, scores and packing."""
