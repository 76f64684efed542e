"""The options of `penstock sim slotted` and `penstock sim twin`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.inputs import policy_names

USUAL_POLICY = "t-heron"


def _completer(kind: str, *more: str) -> Callable[[str], list[str]]:
    """Return what completes the name of a policy of a kind."""

    def complete(incomplete: str) -> list[str]:
        from penstock.policies.registry import PolicyKind, names

        return [name for name in (*names(PolicyKind(kind)), *more) if name.startswith(incomplete)]

    return complete


RoutingsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Which way tuples go: NAME or NAME:PARAMETER=VALUE; repeat to compare; all: every other one. Without "
        "it the plan's, or all.",
        autocompletion=_completer("routing", "all"),
    ),
]
SendingOption = Annotated[
    str | None,
    typer.Option(
        help="Which out-queue of a machine sends first; with --link. Without it the plan's, or fifo.",
        autocompletion=_completer("sending"),
    ),
]
ArrivalsOption = Annotated[
    str | None,
    typer.Option(
        metavar="PROCESS",
        help="What comes to all sources together: a trace (FILE or FILE:rate=900,speed=300), or constant, poisson, "
        "on-off (on, burst), self-similar (hurst, cv), diurnal (amplitude, period, phase), step (factor, at), each "
        "with rate=, tuples a second: on-off:rate=900,burst=2. Without it, Poisson at the application's own rate, "
        "or at 80 % of what it can carry.",
    ),
]
SlotsOption = Annotated[int | None, typer.Option(help="How many slots of time; 10,000 unless said.", min=1)]
SlotOption = Annotated[
    float | None, typer.Option("--slot-ms", help="A slot's length in milliseconds; the plan's, or 10, unless said.")
]
WarmUpOption = Annotated[
    int | None, typer.Option("--warm-up", help="Slots before measuring starts; default: a tenth of them.", min=0)
]
WarmUpSecondsOption = Annotated[
    float | None, typer.Option("--warm-up", help="Seconds before measuring starts; default: a tenth of them.", min=0)
]
PolicyOption = Annotated[
    str | None,
    typer.Option(help=f"Who places the tasks; without it, {USUAL_POLICY}.", autocompletion=policy_names),
]
PlanOption = Annotated[
    Path | None,
    typer.Option(help="Instead of --policy: a plan file that says where tasks are; its tuple policies are used."),
]
LookAheadOption = Annotated[
    int | None, typer.Option("--look-ahead", metavar="SLOTS", help="How far ahead sources see.", min=0)
]
ForecasterOption = Annotated[
    str | None,
    typer.Option(
        help="What they see; without it, exactly what will come. Alone: one slot ahead.",
        autocompletion=_completer("forecast"),
    ),
]
LinkOption = Annotated[
    int | None,
    typer.Option(metavar="TUPLES", help="Tuples that may leave a machine a slot; without it, any number.", min=1),
]
SeedsOption = Annotated[list[int] | None, typer.Option(help="Repeat for means over several.", min=0)]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Verify in every slot that no tuple is lost or doubled; slower.")
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
