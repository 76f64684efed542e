"""Commands of a run's autopilot."""
