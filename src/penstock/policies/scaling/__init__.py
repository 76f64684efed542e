"""Policies that decide how many tasks each component has."""
