"""Formatting of counts, bandwidths, ranges of names and estimates."""

from collections.abc import Mapping, Sequence

from penstock.cli.output import number, size
from penstock.model.tuples import TuplePolicies
from penstock.pipeline.report_rows import PhaseResult

LONGEST_NAME = 18  # of a phase, in a column
_UNITS = {"tps": "tuples/s", "ms": "ms", "mbps": "Mbit/s"}


def plural(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `1 slot`, `2 slots`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def policies_in_words(tuples: TuplePolicies) -> list[str]:
    """Return the tuple policies that a plan names, for a person."""
    return [f"{name} {text}" for name, text in named_texts(tuples).items()]


def named_texts(tuples: TuplePolicies) -> dict[str, str]:
    """Return the tuple policies that a plan names, by what they are for; the slot only if it is set."""
    return {name: text for name, text in tuples.texts.items() if name != "slot" or tuples.slot_ms is not None}


def changed_texts(old: Mapping[str, str], new: Mapping[str, str], none: str) -> dict[str, tuple[str, str]]:
    """Return the differing texts by name: the one before and the one after, `none` if missing."""
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return {name: (old.get(name, none), new.get(name, none)) for name in names}


def phase_labels(phases: Sequence[PhaseResult]) -> dict[int, str]:
    """Return the labels of phases in tables: the name, with the number if it is ambiguous; only that if it is long."""
    names = [phase.name for phase in phases]
    labels = {}
    for phase in phases:
        same = f"{phase.name} ({phase.number + 1})" if names.count(phase.name) > 1 else phase.name
        labels[phase.number] = same if len(phase.name) <= LONGEST_NAME else f"phase {phase.number + 1}"
    return labels


def span(names: Sequence[str]) -> str:
    """Abbreviate a list of names to its first and last."""
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"


def between(texts: Sequence[str]) -> str:
    """Format the range of sorted amounts: `1.02 to 4.1 GB`, or one amount if all are equal."""
    first, last = texts[0], texts[-1]
    if first == last:
        return first
    amount, _, unit = first.partition(" ")
    return f"{amount} to {last}" if unit == last.partition(" ")[2] else f"{first} to {last}"


def bandwidth(mbps: float) -> str:
    """Format a bandwidth."""
    return f"{mbps:.3g} Mbit/s" if mbps < 1000 else f"{mbps / 1000:.3g} Gbit/s"


def percent(share: float) -> str:
    """Format a share in percent; a small one is never shown as 0."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def fails(probability: float) -> str:
    """Format a failure probability; empty for 0."""
    return f"fails {100 * probability:.3g} %" if probability else ""


def card(sends_mbps: float, receives_mbps: float) -> str:
    """Format the bandwidth of a network card, in each direction if they differ."""
    differs = sends_mbps != receives_mbps
    return f"{bandwidth(sends_mbps)} out, {bandwidth(receives_mbps)} in" if differs else bandwidth(sends_mbps)


def estimate(name: str, value: float) -> str:
    """Format one of a plan's estimates, whose unit is the suffix of its name: `throughput_tps`, `delay_ms`."""
    if name.endswith("_bytes_per_tuple"):
        return f"{name.removesuffix('_bytes_per_tuple').replace('_', ' ')} {size(value)} per source tuple"
    what, _, unit = name.rpartition("_")
    if what and unit in _UNITS:
        return f"{what.replace('_', ' ')} {number(value)} {_UNITS[unit]}"
    return f"{name.replace('_', ' ')} {number(value)}"
