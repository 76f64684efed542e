"""Simulation of a user's own case: in time slots, or event by event on the twin."""
