"""`penstock runs limit`: limit the rate of a running application's sources."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.admission.reconciler.state import PathState, path_of
from penstock.cli.inputs import JsonOption, RunOption, RunsOption
from penstock.cli.output import number, print_json, print_line
from penstock.cli.run_view import limits_line
from penstock.model.errors import InvalidInput
from penstock.runtime.control_socket import LimitSources, ask
from penstock.runtime.storage.run_folder import find_running

NONE = "none"


def limit(
    rates: Annotated[
        list[str],
        typer.Argument(
            metavar="[SOURCE=]RATE|none...",
            help="Tuples per second of a source, or of all together; none: no limit; 0: pause.",
        ),
    ],
    run: RunOption = None,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Limit the rate of a running application's sources.

    Sources that are not named keep their limits. The time for which tuples wait counts as latency. Checkpoints, moves
    and the end are not affected.

    A run of penstock cluster serve has its booked limit. It keeps a lower one until it ends; a higher one is reset
    within a second or two, since others have been promised the capacity: change its priority or guarantee instead.

    Example: penstock runs limit cameras=20 logs=none --run word-count-20250131-142501
    """
    wanted = parsed(rates)
    info = find_running(run, runs)
    found = ask(info, LimitSources(wanted))
    if as_json:
        print_json(found)
        return
    print_line(limits_line(found) or "no source has a limit")
    path = path_of(info.path, info.config.execution.share)
    if path is not None and path.sources:  # an earlier version does not report them
        print_line(operated(path, found), "yellow")


def operated(path: PathState, limits: Mapping[str, float]) -> str:
    """Describe how long limits last on a run whose rates follow a book."""
    lower = {source: rate for source, rate in path.sources.items() if limits.get(source, math.inf) < rate}
    higher = {source: rate for source, rate in path.sources.items() if limits.get(source, math.inf) > rate}

    notes = []
    if lower:
        notes.append(f"a lower limit{_which(lower, path)} is kept until this run ends, even if the booked rate changes")
    if higher:
        notes.append(f"a higher limit{_which(higher, path)} is reset within seconds")
        notes.append("change its priority, or admit it again")
    booked = f"penstock cluster serve runs this for {path.application}, booked {number(path.booked_tps)}/s"
    return f"{booked}: {'; '.join(notes) or 'it follows the book'}"


def _which(sources: Mapping[str, float], path: PathState) -> str:
    """Name some of a path's sources with their booked rates, if it has several."""
    named = ", ".join(f"{source}, booked {number(rate)}/s" for source, rate in sources.items())
    return f" ({named})" if len(path.sources) > 1 else ""


def parsed(rates: Sequence[str]) -> dict[str, float | None] | float | None:
    """Return the limits that texts name: one for all sources together, or by source."""
    if len(rates) == 1 and "=" not in rates[0]:
        return _rate(rates[0], rates[0])
    named: dict[str, float | None] = {}
    for text in rates:
        source, equals, rate = text.rpartition("=")
        if not equals:
            raise InvalidInput("rate", f"expected SOURCE=RATE, as there are several, got {text!r}; name its source")
        if source in named:
            raise InvalidInput("rate", f"{source!r} has one already, got {text!r} too; leave one out")
        named[source] = _rate(text, rate)
    return named


def _rate(text: str, rate: str) -> float | None:
    if rate == NONE:
        return None
    try:
        value = float(rate)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:  # JSON cannot represent the others
        raise InvalidInput("rate", f"expected tuples per second ≥ 0, or none for no limit, got {text!r}")
    return value
