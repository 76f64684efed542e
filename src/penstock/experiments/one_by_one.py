"""Live figures: cases that are real runs, one after another in the driver, as each needs the whole host.

They take minutes each, so what is finished is written down at once: a table `figure-NUMBER.partial.csv`, until all of
the figure is there.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pandas as pd

from penstock.experiments.figure import Case, Figure, LiveRun
from penstock.experiments.reproduction import Reproduced, case_key, judged, seeded
from penstock.model.decoding import decode_json
from penstock.model.files import write_whole

Tell = Callable[[int, int, str], None]
"""Hears how many of all cases are done, and what is being done."""


def reproduce_live(figures: Sequence[Figure], quick: bool, seed: int, folder: Path, tell: Tell) -> Reproduced:
    """Run every case of some figures, those of several figures once, and judge their claims."""
    work = [(figure, case) for figure in figures for case in seeded(figure.cases(quick), seed)]
    known = {case_key(figure, case): (figure, case) for figure, case in work}
    rows: dict[Any, list[dict[str, Any]]] = {}
    for key, (figure, case) in known.items():
        done = len(rows)
        run = cast(LiveRun, figure.run)
        made = run(case, lambda what, done=done: tell(done, len(known), what))  # type: ignore[misc]
        # As through a Spark sweep: plain values, whatever a figure's code computes with.
        plain = decode_json(msgspec.json.encode([dict(row) for row in made], enc_hook=lambda one: one.item()))
        rows[key] = [{**case, **row} for row in plain]
        tell(len(rows), len(known), "")
        _keep_partial(folder, figures, work, rows)
    tables = {figure.number: pd.DataFrame(_rows_of(figure, work, rows)) for figure in figures}
    claims = judged(figures, tables)
    return Reproduced(tables, claims, len(known), quick)


def partial_table(folder: Path, number: str) -> Path:
    """Return where the finished cases of a figure are while others of it still run."""
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
