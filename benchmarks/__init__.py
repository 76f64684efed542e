"""Speed, never correctness: `make bench` runs all, `python -m benchmarks NAME` one."""
