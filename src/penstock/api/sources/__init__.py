"""Sources that come with Penstock, one a file, and the pace at which they give tuples."""
