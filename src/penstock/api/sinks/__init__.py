"""The sinks of Penstock, one per file, and the naming and completion of their files."""
