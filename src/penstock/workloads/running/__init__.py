"""Applications that really run: what the topologies of the same names do with real and generated tuples.

`penstock.workloads.dataflows` makes them by name.
"""
