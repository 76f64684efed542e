"""Decide, apply, measure: the loop around the policies."""
