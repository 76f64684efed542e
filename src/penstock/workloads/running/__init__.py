"""Runnable applications: the code of the topologies with the same names, for real and generated tuples.

`penstock.workloads.dataflows` creates them by name.
"""
