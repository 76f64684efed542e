"""Commands that compare policies and reproduce papers."""
