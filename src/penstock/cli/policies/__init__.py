"""Commands that list policies."""
