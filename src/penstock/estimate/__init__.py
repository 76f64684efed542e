"""What a placement would give, without running it."""
