"""What placements take of the machines' batteries, for `penstock plan`: by which powers, and what is said of it.

A cluster's description says nothing of power, so that nothing is shown unless a radio is named: its figures, and that
of the processors, are then assumed of every machine, and the answer says which.
"""

from typing import Any

from msgspec.structs import asdict

from penstock.cli.output import console, number
from penstock.estimate.energy import RADIOS, Energy, Power, energy
from penstock.model.errors import UnknownName, nearest
from penstock.model.placement import Placement
from penstock.model.spec import build
from penstock.planning.planner import Decision, Planner

SHOWN = 6  # machines that are listed


def power_of(text: str | None) -> Power | None:
    """Return what machines are assumed to draw: `wi-fi`, or `lte:cpu_watts=4`; None where nobody asks."""
    if text is None:
        return None
    radio, _, settings = text.partition(":")
    if radio not in RADIOS:
        raise UnknownName("energy", f"no radio is named {radio!r}; {nearest(radio, RADIOS)}")
    return build(f"energy.{radio}", Power, settings, asdict(RADIOS[radio]))


def energy_of(planner: Planner, decision: Decision, power: Power | None) -> Energy | None:
    """Return what a decision's placement takes for a source tuple; None without one, or where nobody asks."""
    if power is None or not isinstance(decision.result, Placement):
        return None
    return energy(planner.evaluator.tasks, planner.evaluator.slots, planner.cluster, decision.result, power)


def print_energy(planner: Planner, best: Decision, power: Power | None) -> None:
    """Say what the best takes for a source tuple, for what, and on which machines."""
    found = energy_of(planner, best, power)
    if found is None:
        return
    parts = ", ".join(f"{name} {number(float(part.sum()))} J" for name, part in found._asdict().items())
    console.print(f"  energy a source tuple: {number(found.joules)} J ({parts})", soft_wrap=True)
    if listed := list(_by_machine(planner, found).items()):
        more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        told = ", ".join(f"{name} {number(joules)} J" for name, joules in listed[:SHOWN])
        console.print(f"    by {told}{more}", soft_wrap=True)


def assumptions(power: Power) -> str:
    """Write what an energy stands on: that no cluster says what its machines draw."""
    radio = f"{power.send_joules_a_megabit:g} J for a megabit sent, {power.receive_joules_a_megabit:g} J received"
    return f"energy: assumed {power.cpu_watts:g} W of a busy machine, {radio}; nothing of what is drawn idle"


def energy_record(planner: Planner, decision: Decision, power: Power | None) -> dict[str, Any]:
    """Return the same for programs; empty where nobody asks."""
    found = energy_of(planner, decision, power)
    if power is None or found is None:
        return {}
    parts = {f"{name}_j": float(part.sum()) for name, part in found._asdict().items()}
    told = {"joules_a_tuple": found.joules, **parts, "machines": _by_machine(planner, found), "assumed": asdict(power)}
    return {"energy": told}


def _by_machine(planner: Planner, found: Energy) -> dict[str, float]:
    """Return the joules a source tuple of every machine that takes any, the most first."""
    joules = found.processing + found.sending + found.receiving
    named = {machine.name: float(own) for machine, own in zip(planner.cluster.machines, joules, strict=True)}
    return {name: own for name, own in sorted(named.items(), key=lambda pair: -pair[1]) if own > 0}
