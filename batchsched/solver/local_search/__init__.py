"""Local search over one packing: moves that make room for pods that do not fit."""
