"""Read the windows of one run from the pipeline's tables without Spark; a planner needs only a few minutes of them."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.errors import FileProblem, InvalidInput, UnknownName, choices, nearest
from penstock.model.features import LOAD_WINDOW, SHARE_WINDOW, WINDOW_S
from penstock.pipeline.manifest import Manifest, read_manifest, run_of

if TYPE_CHECKING:
    import pyarrow as pa


class RunWindows(NamedTuple):
    """The windows of a run."""

    run: str
    features: "pa.Table"  # of each task, with the columns of `LOAD_WINDOW`
    shares: "pa.Table"  # of each pair of tasks, with the columns of `SHARE_WINDOW`
    window_s: float


def read_run(tables: Path, run: str | None = None) -> RunWindows:
    """Return the windows of a run in a pipeline's output folder; default: the only run.

    A folder without a manifest has one Parquet folder per table.
    """
    manifest = read_manifest(tables)
    names = {"features": LOAD_WINDOW, "shares": SHARE_WINDOW}
    if manifest is not None:
        chosen = _chosen(tables, manifest.derived, run)
        features, shares = (_part(tables, name, manifest, chosen, columns) for name, columns in names.items())
    else:
        both = [_standing(tables, name, columns) for name, columns in names.items()]
        chosen = _chosen(tables, dict.fromkeys(both[0]["run"].to_pylist()), run)
        features, shares = (table.filter([one == chosen for one in table["run"].to_pylist()]) for table in both)
    if not len(features):
        raise FileProblem(f"{tables}: the windows of run {chosen!r} contain no tuples; record a longer run")
    return RunWindows(chosen, features, shares, WINDOW_S if manifest is None else manifest.window_s)


def _chosen(tables: Path, runs: dict[str, str] | dict[str, None], run: str | None) -> str:
    if not runs:
        raise FileProblem(f"{tables}: its tables contain no run; record one with telemetry")
    if run is None and len(runs) > 1:
        raise InvalidInput("run", f"{tables} contains {len(runs)} runs, {choices(runs)}; select one with --run")
    if run == "latest":
        return max(runs, key=lambda name: re.findall(r"\d{8}-\d{6}(?:-\d+)?$", name) or [""])
    if run is not None and run not in runs:
        raise UnknownName("run", f"{tables} contains no run {run!r}; {nearest(run, runs)}")
    return next(iter(runs)) if run is None else run


def _part(tables: Path, name: str, manifest: Manifest, run: str, columns: tuple[str, ...]) -> "pa.Table":
    """Return a run's rows of a table, from the valid part."""
    import pyarrow as pa

    folders = [path for path in (tables / name / manifest.derived[run]).glob("run=*") if run_of(path) == run]
    files = [file for folder in folders for file in sorted(folder.glob("*.parquet"))]
    if not files:
        return pa.table({column: [] for column in columns})
    rows = _read(tables, name, files, tuple(column for column in columns if column != "run"))
    return rows.append_column("run", pa.array([run] * len(rows), pa.string()))


def _standing(tables: Path, name: str, columns: tuple[str, ...]) -> "pa.Table":
    files = sorted((tables / name).glob("*.parquet"))
    if not files:
        problem = f"expected the output of penstock models tables, but there is no table {name}"
        raise FileProblem(f"{tables}: {problem}; choose another folder")
    return _read(tables, name, files, columns)


def _read(tables: Path, name: str, files: list[Path], columns: tuple[str, ...]) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        whole = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    except (OSError, pa.ArrowException) as error:
        why = str(error).splitlines()[0]
        raise FileProblem(f"{tables}: table {name} cannot be read, {why}; run the pipeline again") from None
    if missing := [column for column in columns if column not in whole.column_names]:
        problem = f"table {name} has no column {missing[0]}, it was made by an older version"
        raise FileProblem(f"{tables}: {problem}; run the pipeline again into another folder")
    return whole.select(list(columns))
