"""Commands on a cluster's book."""
