"""The sources of Penstock, one per file, and the pace at which they emit tuples."""
