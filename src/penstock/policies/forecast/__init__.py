"""Forecasts of arrivals: one file per policy, and a measure of their accuracy."""
