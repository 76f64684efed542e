"""The options of `penstock run` that no other command has, and what their texts mean."""

import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.flows import flow_names
from penstock.cli.inputs import cluster_names, objective_names, policy_names, refuse_master

FlowArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="A built-in name, NAME or NAME:PARAMETER=VALUE, a file that describes an application (.toml, .json), "
        "or your code, a Dataflow or what makes one: module:object, file.py:object or file.py.",
        autocompletion=flow_names,
    ),
]
EmulateOption = Annotated[
    str | None,
    typer.Option(help="A cluster to emulate: a file or a built-in name.", autocompletion=cluster_names),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        help="The placement policy, NAME or NAME:PARAMETER=VALUE; round-robin unless said.",
        autocompletion=policy_names,
    ),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        help="What a policy makes the most of: throughput (default), delay, traffic or balanced.",
        autocompletion=objective_names,
    ),
]
PlanOption = Annotated[Path | None, typer.Option(help="A plan file to run by, in place of a policy.")]
ThenOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A policy to change to while it runs, after an equal part of --duration; repeat for more.",
        autocompletion=policy_names,
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(help="Latency models, by which policies and the autopilot predict; see penstock models train."),
]
ReportOption = Annotated[bool, typer.Option("--report", help="When it has ended, report on its telemetry.")]
RateOption = Annotated[float | None, typer.Option(help="Tuples a second that the sources give.")]
ArrivalsOption = Annotated[
    str | None, typer.Option(help="How they come: poisson, on-off, replay:path=FILE, …, with --rate or rate=.")
]
DurationOption = Annotated[float | None, typer.Option(help="Seconds to run, then drain.")]
TelemetryOption = Annotated[Path | None, typer.Option(help="A folder for telemetry, in place of the run's.")]
InputOption = Annotated[Path | None, typer.Option(help="A file or folder to read, in place of generated data.")]
NewRunsOption = Annotated[Path, typer.Option(help="Where run folders are made.")]
SampleOption = Annotated[
    str | None,
    typer.Option(help="Tuples a second of each source task that are followed to the end, or all, or none; 20."),
]
InFlightOption = Annotated[int | None, typer.Option(help="Most tuples of each source task under way at once.")]
ListenOption = Annotated[
    str | None, typer.Option(help="Where workers call, HOST or HOST:PORT; loopback, or the driver's host.")
]
SeedOption = Annotated[int | None, typer.Option(help="For everything that is drawn by lot; 0 unless said.", min=0)]
CheckpointOption = Annotated[
    str | None,
    typer.Option(metavar="SECONDS", help="Time between checkpoints; none: only one, at the end. 5 unless said."),
]
GuaranteeOption = Annotated[
    str | None,
    typer.Option(help="exactly-once: refuse an application that cannot keep it; any (unless said): take it."),
]
ProtectOption = Annotated[
    bool | None,
    typer.Option(
        "--protect-frames/--no-protect-frames",
        help="Add a keyed checksum to every frame between workers. Default: off.",
    ),
]
UmaskOption = Annotated[
    str | None,
    typer.Option(metavar="OCTAL", help="Permissions that the run's files do not have. Default: 077, the owner alone."),
]
RestartsOption = Annotated[
    int | None,
    typer.Option(help="Recoveries within --restart-window after which the next loss ends the run; default: 10.", min=0),
]
RestartWindowOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="The time within which recoveries count; default: 600.")
]
ResumeOption = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="Go on with a run from its last checkpoint: its name, its folder, or latest."),
]


def refuse_numbers(**options: float | None) -> None:
    """Refuse numbers that are not above 0."""
    from penstock.model.errors import InvalidInput

    for name, value in options.items():
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInput(name, f"expected a number > 0, got {value:g}; choose another --{name.replace('_', '-')}")


def refuse_places(master: str | None, source: Path | None, folders: dict[str, Path | None]) -> None:
    """Refuse a master that is no URL of one, an input that is not there and folders that cannot be written."""
    from penstock.model.errors import FileProblem
    from penstock.runtime.storage.run_folder import refuse_unwritable

    refuse_master(master)
    if source is not None and not source.exists():
        raise FileProblem(f"{source}: cannot be read, there is no such file or folder; choose another --input")
    for option, folder in folders.items():
        if folder is not None:
            refuse_unwritable(folder, f"--{option}")


def sampled_tps(text: str | None) -> float | None:
    """Return the tuples a second to follow: below 0 all, 0 none, None as usual."""
    from penstock.model.errors import InvalidInput

    if text is None or text in ("all", "none"):
        return None if text is None else -1.0 if text == "all" else 0.0
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise InvalidInput("sample", f"expected a number ≥ 0, all or none, got {text!r}; choose another --sample")
    return found


def checkpoint_s(text: str | None) -> float | None:
    """Return the seconds between checkpoints: 0 for none but the last, None as usual."""
    from penstock.model.errors import InvalidInput

    if text is None or text == "none":
        return None if text is None else 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds < float("inf"):
        problem = f"expected seconds ≥ 0.1 or none, got {text!r}; choose another --checkpoint-every"
        raise InvalidInput("checkpoint_every", problem)
    return seconds


def octal(text: str | None) -> int | None:
    """Return the number that `--umask` means."""
    from penstock.model.errors import InvalidInput

    if text is None:
        return None
    if not re.fullmatch(r"[0-7]{1,4}", text):
        raise InvalidInput("umask", f"expected an octal number from 000 to 077, got {text!r}")
    return int(text, 8)
