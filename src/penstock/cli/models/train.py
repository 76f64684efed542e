"""`penstock models train latency`: train latency models on the pipeline's tables."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.markup import escape

from penstock.cli.inputs import JsonOption, MasterOption, SeedOption, refuse_file, refuse_master
from penstock.cli.output import console, print_json, print_line, table
from penstock.cli.spark import on_spark
from penstock.estimate.latency_models import save_models
from penstock.model.errors import FileProblem, UnknownName, nearest
from penstock.pipeline.training import Training, TrainingResult, train_latency

KINDS = ("best", "svr", "linear", "mean")

TablesArgument = Annotated[Path, typer.Argument(metavar="TABLES", help="The output folder of penstock models tables.")]


def train(
    tables: TablesArgument,
    output: Annotated[Path, typer.Option(help="The file for the models (.npz).")],
    kind: Annotated[
        str,
        typer.Option(
            help="Kind of model: svr (support vector regression), linear, mean, or best: per component "
            "and stream, by cross-validation."
        ),
    ] = "best",
    application: Annotated[str | None, typer.Option(help="The application's name; default: that of its runs.")] = None,
    seed: SeedOption = 0,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train latency models on tables.

    The models predict how long tuples take at each component and over each stream from the load of their machines. A
    support vector regression, a linear model and a mean are fitted to each, all at once on Spark; kind, kernel and
    parameters are those that predict held-out placements best. The models then predict the latency of placements that
    were never tried: penstock plan --model, penstock run --model. Train on many placements (penstock sim explore), at
    the loads that will matter: models know only what they have seen.

    Example: penstock models train latency tables --application word-count --output word-count.npz
    """
    _refuse(output, kind)
    with working(tables, master, quiet=as_json) as (spark, log_step):
        options = {"kind": kind, "application": application, "seed": seed}
        made = train_latency(spark, tables, step=log_step, **options)  # type: ignore[arg-type]
    save_models(made.models, output)
    if as_json:
        trained = [one._asdict() for one in made.trained]
        print_json({"file": str(output), "application": made.models.application, "kind": kind, "models": trained})
    else:
        _show(made, output)


@contextmanager
def working(tables: Path, master: str | None, quiet: bool) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """Yield a Spark session and a function that logs each step; reject a missing folder before Spark starts."""
    refuse_master(master)
    if not tables.is_dir():
        raise FileProblem(f"{tables}: there is no such folder; check the path")
    if not (tables / "task_windows").is_dir():
        problem = "expected the output folder of penstock models tables, it has no task_windows"
        raise FileProblem(f"{tables}: {problem}; choose another")
    with on_spark("latency", tables, master, quiet) as working, report_damage(tables):
        yield working


@contextmanager
def report_damage(tables: Path) -> Iterator[None]:
    """Report a file of a table that Spark cannot read in one line, instead of its stack trace."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        if "FAILED_READ_FILE" not in text and "is not a Parquet file" not in text:
            raise
        found = re.search(r"file:/+([^\s]+?\.parquet)", text)
        damaged = f"/{found[1]}" if found else "one of its files"
        raise FileProblem(
            f"{tables}: {damaged} cannot be read, it is damaged; run penstock models tables again"
        ) from None


def _refuse(output: Path, kind: str) -> None:
    if kind not in KINDS:
        raise UnknownName("kind", f"no kind of model is named {kind!r}; {nearest(kind, KINDS)}")
    refuse_file(output, (".npz",))


def _show(made: Training, output: Path) -> None:
    rows = table("", "kept", "parameters", "rows", "accuracy", *KINDS[1:], left=("kept", "parameters"))
    for one in made.trained:
        cells = (percent_or_dash(one.accuracy), *(percent_or_dash(one.beside.get(kind)) for kind in KINDS[1:]))
        rows.add_row(escape(one.name), one.kind, _parameters(one), f"{one.rows:,}", *cells)
    places = max((one.placements for one in made.trained), default=0)
    console.print(f"[bold]{escape(made.models.application)}[/]: latency models from {places} placements\n")
    console.print(rows)
    apart = "placements" if places > 1 else "windows, as there is one placement only: explore more of them"
    note = f"accuracy: 1 - |predicted - measured| / measured of a window's mean, on {apart} kept apart"
    console.print(f"[dim]{note}; svr, linear, mean: every kind on the same[/]", soft_wrap=True)
    if lost := [f"{escape(one.name)} ({one.better})" for one in made.trained if one.better]:
        console.print(f"[yellow]a kind that is not kept is better for {', '.join(lost)}; --kind best keeps it[/]")
    print_line(f"saved {output}")


def percent_or_dash(share: float | None) -> str:
    """Format a share in percent."""
    return "-" if share is None or share != share else f"{100 * share:.1f} %"


def _parameters(one: TrainingResult) -> str:
    parameters = {**one.parameters}
    label = "log" if parameters.pop("label", "") == "logarithm" else ""
    return " ".join([*(f"{name}={value:.3g}" for name, value in parameters.items()), *([label] if label else [])])
