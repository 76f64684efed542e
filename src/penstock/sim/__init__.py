"""Simulators: systems in virtual time."""
