"""Planning: asks policies where tasks run, predicts throughput and latency, and explains what limits them."""
