"""Admission: the book of a cluster, and the reconciler that runs what the book contains."""
