"""Placing pods on nodes: free capacity, the order in which nodes are filled, and the placement of single gangs."""
