"""`penstock run` of real applications: in this process beside a session, and in a process of its own with Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.pipeline.session import session
from penstock.runtime import control_socket as control
from penstock.runtime.spark.executors import embedded_master, spark_settings
from penstock.runtime.storage.run_folder import RunInfo, latest
from tests.conftest import Ran
from tests.runtime.words import Count, last_counts, truth, words

pytestmark = pytest.mark.spark

Penstock = Callable[..., Ran]
FLOW = "tests.runtime.words:words"
LIMIT_S = 120.0


class Fussy(Count):
    """A count that ends after a number of tuples."""

    def process(self, value: str) -> list[tuple[str, int]]:
        if self.counts.get(value) == 30:
            raise ValueError("that is enough")
        return super().process(value)


def fussy() -> ps.Dataflow:
    return words(rate=200, operator=Fussy)


# In this process


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    with session("tests", embedded_master(2), settings=spark_settings(2, True), folder=tmp_path / "spark") as made:
        yield made


def test_runs_moves_ends_and_fails_as_documented(penstock: Penstock, spark: SparkSession, tmp_path: Path) -> None:
    runs = ("--runs", tmp_path / "runs")
    ran = penstock("run", FLOW, "--rate", 200, "--duration", 3, *runs, "--sample", 50, "--in-flight", 100)
    assert ran.code == 0, ran.err
    assert "the time is up, draining" in ran.err
    info = latest(tmp_path / "runs")
    assert info.ended is not None
    emitted = sum(last_counts(info.path).values()) // 5
    assert emitted > 0
    assert last_counts(info.path) == truth(emitted)
    assert "penstock report" in ran.out
    assert (info.outcome, info.reason) == ("completed", "it was drained")
    answer = json.loads(penstock("status", "latest", *runs, "--json").out)
    assert (answer["outcome"], answer["emitted"], answer["checkpoint"]["number"]) == (
        "completed", emitted, answer["last_checkpoint"]["number"],
    )  # fmt: skip

    ran = penstock("run", "tests.cli.test_run_live:fussy", *runs)
    assert ran.code == 1
    log = latest(tmp_path / "runs").log_path
    error = rf"error: count\[[01]\]: ValueError: that is enough on tuple 'w\d+'; more in {re.escape(str(log))}"
    assert re.fullmatch(error, ran.err.splitlines()[-1])
    assert "that is enough" in log.read_text()
    failed, completed = json.loads(penstock("runs", "list", *runs, "--json").out)["runs"]
    assert (failed["state"], failed["outcome"], completed["outcome"]) == ("ended", "failed", "completed")
    assert "that is enough" in failed["reason"]

    there = len(list((tmp_path / "runs").iterdir()))
    ran = penstock("run", FLOW, *runs, "--listen", "127.0.0.1:x")
    assert (ran.code, ran.err) == (2, "error: --listen: expected HOST or HOST:PORT, got '127.0.0.1:x'\n")
    ran = penstock("run", FLOW, *runs, "--emulate", "hetero-small")
    assert ran.code == 2
    assert re.fullmatch(r"error: master: '.+' offers \d+ cores, the plan needs \d+: .+", ran.err.splitlines()[-1])
    assert len(list((tmp_path / "runs").iterdir())) == there


# In a process of its own


MODULE = """
import penstock as ps
from valve_parts import Many, Slow, sentence, split

def make(operator):
    flow = ps.Dataflow("valves")
    lines = flow.source("lines", ps.Generated(sentence, rate=300))
    words = flow.flat_map("split", split, lines, parallelism=2)
    counts = flow.operator("count", operator, words.fields(ps.Named("word")))
    flow.sink("out", ps.JsonLines("output"), counts)
    return flow

flow, slow = make(Many), make(Slow)
"""
PARTS = """
import time
import penstock as ps

def sentence(number: int) -> str:
    return f"a b{number % 3} b{number % 5}"

def split(text: str) -> list[str]:
    return text.split()

class Many(ps.Operator[str, tuple[str, int]]):
    def open(self, context):
        self.counts = {}
        print("open in", context.folder)

    def process(self, value):
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]

class Slow(Many):
    def open(self, context):
        time.sleep(8)
        super().open(context)
"""


class Terminal:
    """`penstock` in a process group of its own, as a terminal starts it; all its descendants carry a mark."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.mark = f"PENSTOCK_MARK={uuid4().hex}"
        name, _, value = self.mark.partition("=")
        command = [
            sys.executable,
            "-c",
            "from penstock.cli import main; main()",
            *(str(argument) for argument in arguments),
        ]
        self.process = subprocess.Popen(
            command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env={**os.environ, name: value},
        )  # fmt: skip
        self.said = ""

    def until(self, text: str) -> None:
        """Read what it says until a text comes."""
        assert self.process.stderr is not None
        while text not in self.said:
            line = self.process.stderr.readline()
            assert line, f"{text!r} was not said: {self.said}"
            self.said += line

    def interrupt(self) -> None:
        """Do what Ctrl-C does: every process of the group gets the signal."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> Ran:
        out, err = self.process.communicate(timeout=LIMIT_S)
        return Ran(self.process.returncode, out, self.said + err)

    def descendants(self) -> list[str]:
        """Return the command lines of all processes that it started, however far down, and that still run."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:  # it has gone, or is somebody else's
                continue
        return found

    def wait_until_alone(self) -> None:
        deadline = monotonic() + LIMIT_S
        while left := self.descendants():
            assert monotonic() < deadline, left
            sleep(0.1)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []
    (tmp_path / "valve_app.py").write_text(MODULE)
    (tmp_path / "valve_parts.py").write_text(PARTS)

    def start(*arguments: object) -> Terminal:
        started.append(Terminal(tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.communicate()


def wait_for_output(info: RunInfo) -> None:
    """Wait until tuples have gone all the way."""
    deadline = monotonic() + LIMIT_S
    while not control.ask(info, control.GetStatus()).written:
        assert monotonic() < deadline
        sleep(0.05)


def counted(folder: Path) -> dict[str, int]:
    """Return the last count of every word, and see that none is missing."""
    rows = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    found: dict[str, int] = {}
    for word, count in rows:
        assert count == found.get(word, 0) + 1
        found[word] = count
    return found


def test_ctrl_c_drains_an_application_of_the_users_own_and_leaves_no_process(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    run = terminal("run", "valve_app:flow")
    run.until("running:")
    assert any("java" in line for line in run.descendants())
    wait_for_output(latest(tmp_path / "runs"))
    run.interrupt()
    ran = run.end()
    assert ran.code == 0, ran.err
    assert "draining; Ctrl-C again stops at once" in ran.err
    assert "Traceback" not in ran.err
    run.wait_until_alone()
    info = latest(tmp_path / "runs")
    assert info.ended is not None
    found = counted(info.output_path)
    sentences = found["a"]
    assert sentences > 0
    assert sum(found.values()) == 3 * sentences
    assert f"count[0]: open in {info.path.absolute()}" in info.log_path.read_text()


@pytest.mark.parametrize("moment", ["starting Spark", "starting workers"])
def test_ctrl_c_while_it_starts_ends_it_in_one_line_and_leaves_no_process(
    terminal: Callable[..., Terminal], tmp_path: Path, moment: str
) -> None:
    run = terminal("run", "valve_app:slow", "--emulate", "hetero-small")  # slow, so that it surely still starts
    run.until(moment)
    sleep(0.5)
    run.interrupt()
    ran = run.end()
    assert ran.code == 130, ran.err
    assert "Traceback" not in ran.err
    assert "Exception" not in ran.err
    run.wait_until_alone()
    left = list((tmp_path / "runs").iterdir())
    assert [folder for folder in left if latest(tmp_path / "runs").ended is None] == []
