"""Commands that change and inspect runs."""
