"""The options of `penstock run` that are not settings of the run, and checks of their values."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.flows import flow_names
from penstock.cli.inputs import RUN_HELP, policy_names, refuse_master
from penstock.model.errors import FileProblem, InvalidInput
from penstock.runtime.storage.run_folder import refuse_unwritable

FlowArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="A built-in name, NAME or NAME:PARAMETER=VALUE, a file that describes an application (.toml, .json), "
        "or your code, a Dataflow or a function that makes one: module:object, file.py:object or file.py.",
        autocompletion=flow_names,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings of the run (.toml, .json); options override them."),
]
PlanOption = Annotated[Path | None, typer.Option(help="Plan file to use instead of a placement policy.")]
ThenOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Policy to switch to during the run; repeatable: the switches divide --duration equally.",
        autocompletion=policy_names,
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(help="Latency models for policies and the autopilot, from penstock models train."),
]
ReportOption = Annotated[bool, typer.Option("--report", help="Print a report of its telemetry at the end.")]
DurationOption = Annotated[float | None, typer.Option(metavar="SECONDS", help="Time after which the run drains.")]
NewRunsOption = Annotated[Path, typer.Option(help="Folder for run folders.")]
ResumeArgument = Annotated[str | None, typer.Argument(metavar="RUN", help=RUN_HELP)]


def refuse_numbers(**options: float | None) -> None:
    """Reject numbers that are not above 0."""
    for name, value in options.items():
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInput(name, f"expected a number > 0, got {value:g}; choose another --{name.replace('_', '-')}")


def refuse_places(master: str | None, source: str | None, folders: dict[str, Path | None]) -> None:
    """Reject an invalid master URL, a missing input, and folders that cannot be written."""
    refuse_master(master)
    if source is not None and not Path(source).exists():
        raise FileProblem(f"{source}: cannot be read, there is no such file or folder; choose another --input")
    for option, folder in folders.items():
        if folder is not None:
            refuse_unwritable(folder, f"--{option}")
