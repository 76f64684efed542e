"""Registers every command, in the order in which `penstock --help` lists them."""

from penstock.cli import diff, doctor, plan, policies, show, sweep

__all__ = ["diff", "doctor", "plan", "policies", "show", "sweep"]
