"""Allocation of shared capacity to applications."""
