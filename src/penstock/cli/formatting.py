"""How drawings write what they show: counts, bandwidths, ranges of names, estimates."""

from collections.abc import Mapping, Sequence

from penstock.cli.output import number, size
from penstock.model.tuples import TuplePolicies
from penstock.pipeline.report_rows import PhaseResult

LONGEST_NAME = 18  # of a phase, that a column has room for
_UNITS = {"tps": "tuples/s", "ms": "ms", "mbps": "Mbit/s"}


def plural(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun: `1 slot`, `2 slots`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def policies_in_words(tuples: TuplePolicies) -> list[str]:
    """Return the tuple policies that a plan names, for a person."""
    return [f"{name} {text}" for name, text in named_texts(tuples).items()]


def named_texts(tuples: TuplePolicies) -> dict[str, str]:
    """Return the tuple policies that a plan names, by what they are for; a slot only where it names one."""
    return {name: text for name, text in tuples.texts.items() if name != "slot" or tuples.slot_ms is not None}


def changed_texts(old: Mapping[str, str], new: Mapping[str, str], none: str) -> dict[str, tuple[str, str]]:
    """Return what differs, by name: the text before and the one after, `none` where there is none."""
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return {name: (old.get(name, none), new.get(name, none)) for name in names}


def phase_labels(phases: Sequence[PhaseResult]) -> dict[int, str]:
    """Return what phases are called in tables: by name; by number where that is long, and where two have the same."""
    names = [phase.name for phase in phases]
    labels = {}
    for phase in phases:
        same = f"{phase.name} ({phase.number + 1})" if names.count(phase.name) > 1 else phase.name
        labels[phase.number] = same if len(phase.name) <= LONGEST_NAME else f"phase {phase.number + 1}"
    return labels


def span(names: Sequence[str]) -> str:
    """Write a list of names by its first and last."""
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"


def between(texts: Sequence[str]) -> str:
    """Write the first and last of some sorted amounts, once where they are the same: `1.02 to 4.1 GB`."""
    first, last = texts[0], texts[-1]
    if first == last:
        return first
    amount, _, unit = first.partition(" ")
    return f"{amount} to {last}" if unit == last.partition(" ")[2] else f"{first} to {last}"


def bandwidth(mbps: float) -> str:
    """Write a bandwidth for a person."""
    return f"{mbps:.3g} Mbit/s" if mbps < 1000 else f"{mbps / 1000:.3g} Gbit/s"


def percent(share: float) -> str:
    """Write a share; one that is small is not written as none."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def fails(probability: float) -> str:
    """Write how often something fails; nothing for what never does."""
    return f"fails {100 * probability:.3g} %" if probability else ""


def card(sends_mbps: float, receives_mbps: float) -> str:
    """Write what a network card sends, and what it receives where that differs."""
    differs = sends_mbps != receives_mbps
    return f"{bandwidth(sends_mbps)} out, {bandwidth(receives_mbps)} in" if differs else bandwidth(sends_mbps)


def estimate(name: str, value: float) -> str:
    """Write one of a plan's estimates, its unit being the end of its name: `throughput_tps`, `delay_ms`."""
    if name.endswith("_bytes_per_tuple"):
        return f"{name.removesuffix('_bytes_per_tuple').replace('_', ' ')} {size(value)} a source tuple"
    what, _, unit = name.rpartition("_")
    if what and unit in _UNITS:
        return f"{what.replace('_', ' ')} {number(value)} {_UNITS[unit]}"
    return f"{name.replace('_', ' ')} {number(value)}"
