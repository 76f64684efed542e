"""Experiments: sweeps over policies, clusters and seeds, and their tables."""
