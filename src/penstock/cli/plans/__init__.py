"""Commands on plan files."""
