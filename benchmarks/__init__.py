"""Benchmarks of speed, not of correctness: `make bench` runs all, `python -m benchmarks NAME` one."""
