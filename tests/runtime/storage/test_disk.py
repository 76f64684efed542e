"""Storage jobs in a thread of their own: in order, and heard of in the loop's."""

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from penstock.runtime.storage.disk import Disk, StorageJob, Writer

PATIENCE = 20.0


def concluded(writer: Writer) -> None:
    """Wait until all jobs are heard of."""
    deadline = monotonic() + PATIENCE
    while not writer.idle:
        assert monotonic() < deadline
        writer.conclude()
        sleep(0.001)


def job(do: Callable[[Disk], Any], heard: list[Any]) -> StorageJob:
    return StorageJob(
        "a job", do, lambda result, problem, _: heard.append((result, problem, threading.current_thread()))
    )


def test_runs_jobs_in_order_in_another_thread_and_concludes_them_here(tmp_path: Path) -> None:
    heard: list[Any] = []
    done: list[threading.Thread] = []

    def write(number: int) -> Callable[[Disk], int]:
        def do(disk: Disk) -> int:
            done.append(threading.current_thread())
            disk.write(str(tmp_path / "file"), [str(number).encode()])
            return number

        return do

    woken = threading.Event()
    writer = Writer(woken.set)
    writer.add(job(write(number), heard) for number in range(5))
    assert woken.wait(PATIENCE)
    concluded(writer)
    assert [result for result, _, _ in heard] == [0, 1, 2, 3, 4]
    assert {thread for _, _, thread in heard} == {threading.current_thread()}
    assert threading.current_thread() not in done
    assert (tmp_path / "file").read_text() == "4"
    writer.close()


def test_reports_a_problem_and_runs_the_next_job(tmp_path: Path) -> None:
    heard: list[Any] = []
    writer = Writer(lambda: None)
    broken = job(lambda _: [][0], heard)
    missing = job(lambda disk: disk.read(str(tmp_path / "none")), heard)
    writer.add([missing, broken, job(lambda _: "fine", heard)])
    concluded(writer)
    assert [problem for _, problem, _ in heard] == [
        f"{tmp_path}/none: no such file or directory",
        "a job: IndexError: list index out of range",
        "",
    ]
    writer.close()


def test_a_closed_writer_starts_no_job() -> None:
    heard: list[Any] = []
    began, go_on = threading.Event(), threading.Event()

    def wait(_: Disk) -> None:
        began.set()
        assert go_on.wait(PATIENCE)

    writer = Writer(lambda: None)
    writer.add([job(wait, heard), job(lambda _: heard.append("too late"), heard)])
    assert began.wait(PATIENCE)
    writer.close(within_s=0.0)
    go_on.set()
    writer.close(PATIENCE)
    assert heard == []


def test_a_strict_writer_raises_a_defect() -> None:
    heard: list[Any] = []
    woken = threading.Event()
    writer = Writer(woken.set, strict=True)
    writer.add([job(lambda _: [][0], heard)])
    assert woken.wait(PATIENCE)
    with pytest.raises(IndexError):
        writer.conclude()
    assert heard == []
    writer.close()
