"""Registers every command, in the order in which `penstock --help` lists them."""

from penstock.cli import (
    apply,
    checkpoints,
    diff,
    doctor,
    forecast,
    move,
    plan,
    policies,
    report,
    reproduce,
    run,
    show,
    simulate,
    status,
    stop,
    sweep,
)

__all__ = [
    "apply",
    "checkpoints",
    "diff",
    "doctor",
    "forecast",
    "move",
    "plan",
    "policies",
    "report",
    "reproduce",
    "run",
    "show",
    "simulate",
    "status",
    "stop",
    "sweep",
]
