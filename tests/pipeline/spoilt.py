"""A synthetic run in many files, with duplicate, late and malformed records, and unreadable files."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from tests.pipeline.synthetic import Row, Synthetic, write_records

LATENESS_S = 5.0
STEP_S = 4.0  # of a file


class Spoilt(NamedTuple):
    """The files, and the expected result."""

    folder: Path
    records: int  # that can be used
    quarantined: dict[str, int]


def arrive(truth: Synthetic, folder: Path) -> Spoilt:
    """Write the files of a run, by worker and time, with modification times in this order."""
    folder.mkdir(parents=True)
    files: dict[tuple[int, str], list[Row]] = {}
    for record in truth.records:
        when = record["at"] - truth.shown(record["worker"], 0.0)
        files.setdefault((int(when // STEP_S), record["worker"]), []).append(record)
    last = max(number for number, _ in files)
    reported: dict[str, int] = {}
    _repeat(files, last, reported)
    _spoil(files, last, reported)
    _delay(truth, files, last, reported)
    for (number, worker), rows in files.items():
        _write(folder / f"{worker}-{number:06d}.parquet", rows, number)
    whole = (folder / f"m1-{0:06d}.parquet").read_bytes()
    (folder / "m1-torn.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "m1-text.parquet").write_text("root,id\n1,2\n")
    (folder / "m1-empty.parquet").write_bytes(b"")  # is empty, and is skipped
    for name in ("m1-torn", "m1-text"):
        os.utime(folder / f"{name}.parquet", (2000, 2000))
    reported["unreadable file"] = 2
    return Spoilt(folder, len(truth.records), reported)


def _repeat(files: dict[tuple[int, str], list[Row]], last: int, reported: dict[str, int]) -> None:
    """Duplicate some records: in the same file, in the next one, and a whole file under another name."""
    first = [row for row in files[0, "m0"] if row["kind"] != "clock"]
    files[0, "m0"] += first[:3]
    files[1, "m0"] += first[3:10]
    again = [row for row in files[last - 1, "m1"] if row["kind"] != "clock"]
    files[last, "m1-copy"] = again
    reported["duplicate"] = 3 + 7 + len(again)


def _spoil(files: dict[tuple[int, str], list[Row]], last: int, reported: dict[str, int]) -> None:
    hop = next(row for row in files[1, "m1"] if row["kind"] == "hop")
    task = next(row for row in files[1, "m1"] if row["kind"] == "task")
    bad: list[tuple[str, dict[str, Any]]] = [
        ("hop without sent", hop | {"sent": None}),
        ("hop without sent", hop | {"sent": None, "id": 7}),
        ("queue is negative", task | {"queue": -1}),
        ("unknown kind rumour", task | {"kind": "rumour"}),
        ("run is missing", task | {"run": None}),
        ("at is not a finite number", task | {"at": float("inf")}),
    ]
    for number, (reason, row) in enumerate(bad):
        files[number % last, "m1"].append(row)
        reported[reason] = reported.get(reason, 0) + 1


def _delay(truth: Synthetic, files: dict[tuple[int, str], list[Row]], last: int, reported: dict[str, int]) -> None:
    """Add new records that are older than the lateness allows."""
    start = truth.shown("m1", 0.0)
    hop = next(row for row in files[0, "m1"] if row["kind"] == "hop")
    files[last, "m1"] += [hop | {"id": 11 + number, "at": start + 0.5 + number / 10} for number in range(4)]
    # The newest record of the previous file is its last one: within the allowed lateness of it, none is late.
    newest = max(row["at"] for row in files[last - 1, "m1"] if row["at"] < float("inf"))
    held_back = next(row for row in files[last - 1, "m1"] if row["kind"] == "task" and row["at"] > newest - LATENESS_S)
    files[last - 1, "m1"].remove(held_back)
    files[last, "m1"].append(held_back)
    if held_back in files[last, "m1-copy"]:
        files[last, "m1-copy"].remove(held_back)
        reported["duplicate"] -= 1
    reported["late"] = 4


def _write(path: Path, rows: list[Row], number: int) -> None:
    write_records(path, rows)
    os.utime(path, (1000 + number, 1000 + number))
