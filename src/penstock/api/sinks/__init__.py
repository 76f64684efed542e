"""Sinks that come with Penstock, one a file, and how those that write files name and finish them."""
