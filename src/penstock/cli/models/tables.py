"""`penstock models tables`: telemetry into tables, as a Spark job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.inputs import JsonOption, refuse_master

if TYPE_CHECKING:
    from penstock.pipeline.job import Summary

EXAMPLE = "penstock models tables --input runs/word-count-20250131-142501 --output tables"
MOST_REASONS = 10


def tables(
    telemetry: Annotated[
        Path,
        typer.Option(
            "--input", metavar="DIR", help="A run's folder, one of telemetry, or one that holds runs' folders."
        ),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="A folder for the tables, not in that of --input.")],
    stream: Annotated[
        bool, typer.Option("--stream", help="Take only files that were not taken before, as a stream that then ends.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="As --stream, but go on until interrupted.")] = False,
    window: Annotated[float, typer.Option(help="Seconds of a window.")] = 30.0,
    lateness: Annotated[
        float, typer.Option(help="Seconds behind the newest of its worker from which a record is late.")
    ] = 600.0,
    master: Annotated[str | None, typer.Option(help="A Spark master URL; without it, embedded.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn telemetry into tables of hops, tuples and windows.

    Load shares and reports are made, too (Parquet); invalid records go to quarantine. A stream that is killed continues
    when it is started again, and makes the same tables as a batch.
    """
    from penstock.cli.output import print_json

    summary = _run(telemetry, output, stream, follow, window, lateness, master, quiet=as_json)
    if as_json:
        print_json(summary)
    else:
        _show(summary, output)


def _run(
    telemetry: Path,
    output: Path,
    stream: bool,
    follow: bool,
    window: float,
    lateness: float,
    master: str | None,
    quiet: bool,
) -> "Summary":
    from penstock.cli.progress import on_spark
    from penstock.pipeline.job import SETTINGS, check, is_small, refuse_within, run_pipeline
    from penstock.runtime.storage.run_folder import refuse_unwritable

    refuse_master(master)
    refuse_unwritable(output, "--output")
    place, below = check(telemetry, window, lateness, follow)  # refuse bad input before Spark starts
    refuse_within(output, telemetry, place)
    if not follow:
        _tell_unfinished(place)
    brief = not follow and is_small(place, below)
    with on_spark("pipeline", telemetry, master, quiet, SETTINGS, brief) as (spark, tell):
        return run_pipeline(
            spark, telemetry, output, window_s=window, stream=stream, follow=follow, lateness_s=lateness, step=tell
        )


def _tell_unfinished(folder: Path) -> None:
    """Tell that an exploration has not come to its end: its index is what it writes last."""
    from penstock.cli.formatting import plural
    from penstock.cli.output import errors
    from penstock.exploration.index import INDEX, RUNS

    files = sum(1 for _ in folder.glob(f"{RUNS}.parquet"))
    if files and not (folder / INDEX).exists():
        problem = f"{folder}: has no {INDEX}, its exploration goes on or was killed"
        remedy = f"only the {plural(files, 'placement')} that it has written are taken"
        errors.print(f"{problem}; {remedy}", markup=False, soft_wrap=True)


def _show(summary: "Summary", output: Path) -> None:
    from rich.markup import escape

    from penstock.cli.output import console, number, table

    rows = table("", "rows", title=f"tables of {summary.runs:,} run{'s' if summary.runs != 1 else ''}")
    for name in ("records", "hops", "tuples", "task_windows", "edge_windows"):
        rows.add_row(name.replace("_", " "), f"{getattr(summary, name):,}")
    rows.add_row("quarantine", f"{sum(summary.quarantined.values()):,}")
    for reason, count in list(summary.quarantined.items())[:MOST_REASONS]:
        rows.add_row(f"  {escape(reason)}", f"{count:,}")
    more = len(summary.quarantined) - MOST_REASONS
    if more > 0:
        rows.add_row(f"  [dim]{more} more reasons[/]", "")
    rows.add_row("seconds", number(summary.seconds))
    console.print(rows)
    console.print(f"tables   {output}", soft_wrap=True, markup=False)
