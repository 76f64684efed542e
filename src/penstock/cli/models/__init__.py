"""Commands that make tables and latency models."""
