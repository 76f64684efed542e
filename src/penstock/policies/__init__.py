"""Decisions: protocols, the table of policies, checks of their results."""
