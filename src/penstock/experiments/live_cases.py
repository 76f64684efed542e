"""Live figures: their cases are real runs, one after another in the driver, because each needs the whole host.

Cases take minutes each, so finished ones are written at once to a table `figure-NUMBER.partial.csv`, until the figure
is complete.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, cast

import msgspec
import pandas as pd
from pyspark.sql import SparkSession

from penstock.api.dataflow import Dataflow
from penstock.experiments.figure import Case, Figure, LiveRun
from penstock.experiments.reproduction import Reproduced, case_key, judge_claims, seeded
from penstock.model.cluster import Cluster
from penstock.model.decoding import decode_json
from penstock.model.files import write_whole
from penstock.model.plan import Plan
from penstock.model.tuples import TuplePolicies
from penstock.pipeline.session import running_session, session
from penstock.runtime.config import ALL, Checkpointing, Execution, FlowControl, RunConfig, Telemetry
from penstock.runtime.controller.state_machine import RunFailed
from penstock.runtime.run import Run
from penstock.runtime.spark.executors import embedded_master, spark_settings
from penstock.startup.start import start

Report = Callable[[str], None]
"""Called with the progress of a case."""

MOST_MACHINES = 10  # maximum number of machines that a case emulates
LOOK_S = 0.5  # between two checks of the emulation's lag


def silent(_: str) -> None:
    """Ignore the progress."""


@contextmanager
def live_session(master: str | None = None) -> Iterator[SparkSession]:
    """Return the running session, or start one with room for the machines of any case and for the pipeline."""
    if (running := running_session()) is not None:
        yield running
        return
    settings = spark_settings(MOST_MACHINES, master is None)
    with session("live", master or embedded_master(MOST_MACHINES), settings=settings) as spark:
        yield spark


@contextmanager
def measured_run(
    flow: Dataflow,
    cluster: Cluster,
    folder: Path,
    seed: int,
    *,
    plan: Plan | None = None,
    policy: str | None = None,
    sample_tps: float = ALL,
    window: int = FlowControl().window,
    tuples: TuplePolicies | None = None,
) -> Iterator[Run]:
    """Start a run on emulated machines, and stop it at the end; an error of the run is raised.

    It takes no checkpoints, whose barriers would flush what policies hold back.
    """
    config = RunConfig(
        execution=Execution(seed=seed),
        checkpointing=Checkpointing(interval_s=0.0),
        flow_control=FlowControl(window=window),
        telemetry=Telemetry(enabled=sample_tps != 0.0, sample_tps=sample_tps),
        tuple_policies=tuples or TuplePolicies(),
    )
    run = start(flow, emulate=cluster, plan=plan, policy=policy, runs=folder, config=config)
    try:
        yield run
    finally:
        run.stop()
    if error := run.status().error:
        raise RunFailed(error)


def temporary() -> TemporaryDirectory[str]:
    """Return a temporary folder for runs that are not kept."""
    return TemporaryDirectory(prefix="penstock-live-")


def reproduce_live(
    figures: Sequence[Figure], quick: bool, seed: int, folder: Path, on_progress: Callable[[int, int, str], None]
) -> Reproduced:
    """Run every case of some figures, cases of several figures once, and check their claims.

    on_progress: called with the number of finished cases, of all cases, and the current step.
    """
    work = [(figure, case) for figure in figures for case in seeded(figure.cases(quick), seed)]
    known = {case_key(figure, case): (figure, case) for figure, case in work}
    rows: dict[Any, list[dict[str, Any]]] = {}
    for key, (figure, case) in known.items():
        done = len(rows)
        run = cast(LiveRun, figure.run)
        made = run(case, lambda what, done=done: on_progress(done, len(known), what))  # type: ignore[misc]
        # Plain values, as a Spark job returns them, whatever types a figure's code uses.
        plain = decode_json(msgspec.json.encode([dict(row) for row in made], enc_hook=lambda one: one.item()))
        rows[key] = [{**case, **row} for row in plain]
        on_progress(len(rows), len(known), "")
        _keep_partial(folder, figures, work, rows)
    tables = {figure.number: pd.DataFrame(_rows_of(figure, work, rows)) for figure in figures}
    claims = judge_claims(figures, tables)
    return Reproduced(tables, claims, len(known), quick)


def partial_table(folder: Path, number: str) -> Path:
    """Return the table of a figure's finished cases while others still run."""
    return folder / f"figure-{number}.partial.csv"


def _rows_of(
    figure: Figure, work: Sequence[tuple[Figure, Case]], rows: dict[Any, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    keys = [case_key(owner, case) for owner, case in work if owner is figure]
    return [row for key in keys for row in rows.get(key, [])]


def _keep_partial(
    folder: Path, figures: Sequence[Figure], work: Sequence[tuple[Figure, Case]], rows: dict[Any, list[dict[str, Any]]]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        if finished := _rows_of(figure, work, rows):
            table = pd.DataFrame(finished).to_csv(index=False, float_format="%.6g")
            write_whole(partial_table(folder, figure.number), table.encode())


def looks_late(run: Run, until: float, every_s: float = LOOK_S) -> float:
    """Wait, checking the emulation periodically; return the share of checks at which it lagged."""
    looks = []
    while (left := until - monotonic()) > 0:
        sleep(min(left, every_s))
        looks.append(is_late(run))
    return sum(looks) / max(1, len(looks))


def is_late(run: Run) -> bool:
    """Return whether the emulation lagged recently; raise if the run has failed."""
    status = run.status()
    if status.error:
        raise RunFailed(status.error)
    return any("emulation" in warning for warning in status.warnings)
