"""The options of `penstock sim slotted` and `penstock sim twin`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.inputs import policy_names
from penstock.policies.registry import PolicyKind, names

USUAL_POLICY = "t-heron"


def _completer(kind: str, *more: str) -> Callable[[str], list[str]]:
    """Return a function that completes the name of a policy of a kind."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in (*names(PolicyKind(kind)), *more) if name.startswith(incomplete)]

    return complete


RoutingsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Routing policy, NAME or NAME:PARAMETER=VALUE; repeatable; all: all others; default: the plan's, or all.",
        autocompletion=_completer("routing", "all"),
    ),
]
SendingOption = Annotated[
    str | None,
    typer.Option(
        help="Sending policy, which orders a machine's out-queues, with --link; default: the plan's, or fifo.",
        autocompletion=_completer("sending"),
    ),
]
ArrivalsOption = Annotated[
    str | None,
    typer.Option(
        metavar="PROCESS",
        help="Arrivals of all sources together: a trace (FILE or FILE:rate=900,speed=300), or "
        "constant, poisson, on-off (on, burst), self-similar (hurst, cv), diurnal (amplitude, "
        "period, phase), step (factor, at), each with rate= in tuples per second: "
        "on-off:rate=900,burst=2; default: Poisson at the application's own rate, or at 80 % "
        "of its capacity.",
    ),
]
SlotsOption = Annotated[int | None, typer.Option(help="Number of slots; default: 10,000.", min=1)]
SlotOption = Annotated[
    float | None, typer.Option("--slot-ms", help="Length of a slot in milliseconds; default: the plan's, or 10.")
]
WarmUpOption = Annotated[
    int | None, typer.Option("--warm-up", help="Slots before measuring starts; default: a tenth of them.", min=0)
]
WarmUpSecondsOption = Annotated[
    float | None, typer.Option("--warm-up", help="Seconds before measuring starts; default: a tenth of them.", min=0)
]
PolicyOption = Annotated[
    str | None,
    typer.Option(help=f"Policy that places the tasks; default: {USUAL_POLICY}.", autocompletion=policy_names),
]
PlanOption = Annotated[
    Path | None,
    typer.Option(help="Plan file to use instead of --policy, with its tuple policies."),
]
LookAheadOption = Annotated[
    int | None, typer.Option("--look-ahead", metavar="SLOTS", help="Slots that sources see ahead.", min=0)
]
ForecasterOption = Annotated[
    str | None,
    typer.Option(
        help="Forecaster of what they see; default: the actual arrivals; alone: one slot ahead.",
        autocompletion=_completer("forecast"),
    ),
]
LinkOption = Annotated[
    int | None,
    typer.Option(metavar="TUPLES", help="Maximum tuples that leave a machine per slot; default: no limit.", min=1),
]
SeedsOption = Annotated[
    list[int] | None, typer.Option(help="Random seed; repeatable: results are means over seeds.", min=0)
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Check in every slot that no tuple is lost or duplicated; slower.")
]
RateOption = Annotated[
    float | None,
    typer.Option(help="Poisson arrivals, tuples per second of all sources together.", min=0),
]
DurationOption = Annotated[float | None, typer.Option(help="Measured seconds; default: 60.", min=0)]
CostsOption = Annotated[
    Path | None,
    typer.Option(help="Costs of the engine, from penstock sim calibrate."),
]
RecordsOption = Annotated[Path | None, typer.Option(help="A folder for telemetry, which penstock report reads.")]
PlotOption = Annotated[Path | None, typer.Option(help="Draw backlogs and response times (.png, .svg, .pdf).")]
