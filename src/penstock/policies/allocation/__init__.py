"""Allocation: how much of what they share each of several applications gets."""
