"""Placement by trained networks, in NumPy: what they see, their weights, and how they decide."""
