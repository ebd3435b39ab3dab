"""The tiered model for large sessions: select gangs over pools of nodes and domains, then round to nodes."""
