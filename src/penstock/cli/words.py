"""How drawings write what they show: counts, bandwidths, ranges of names, estimates."""

from collections.abc import Sequence

from penstock.cli.output import number, size

_UNITS = {"tps": "tuples/s", "ms": "ms", "mbps": "Mbit/s"}


def plural(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun: `1 slot`, `2 slots`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


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


def estimate(name: str, value: float) -> str:
    """Write one of a plan's estimates, its unit being the end of its name: `throughput_tps`, `delay_ms`."""
    if name.endswith("_bytes_per_tuple"):
        return f"{name.removesuffix('_bytes_per_tuple').replace('_', ' ')} {size(value)} a source tuple"
    what, _, unit = name.rpartition("_")
    if what and unit in _UNITS:
        return f"{what.replace('_', ' ')} {number(value)} {_UNITS[unit]}"
    return f"{name.replace('_', ' ')} {number(value)}"
