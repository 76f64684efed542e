"""Commands that simulate, measure and forecast."""
