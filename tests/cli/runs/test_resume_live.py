"""A driver that is killed, and `penstock runs resume` after it: what is published is the truth, each tuple once."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from penstock.runtime.storage.checkpoints import load_manifest, numbers
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import RunInfo, latest, load
from tests import ROOT
from tests.cli.test_run_live import Terminal
from tests.conftest import Ran
from tests.kept_run import damage
from tests.runtime.words import truth

pytestmark = pytest.mark.spark

Penstock = Callable[..., Ran]
LIMIT_S = 60.0
MODULE = """
import penstock as ps
from tests.runtime.words import Count, sentence, split


def make(rate: float = 300) -> ps.Dataflow:
    flow = ps.Dataflow("words")
    lines = flow.source("lines", ps.Generated(sentence, rate=rate))
    words = flow.flat_map("split", split, lines, parallelism=2)
    counts = flow.operator("count", Count, words.fields(ps.Named("word")), parallelism=2)
    flow.sink("out", ps.JsonLines("output"), counts.fields(0), parallelism=2)
    return flow
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []
    (tmp_path / "resumed_app.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def start(*arguments: object) -> Terminal:
        started.append(Terminal(tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.communicate()


def published(info: RunInfo) -> dict[str, int]:
    """Return the last count of every word, and see that every count before it is there once and in order."""
    found: dict[str, int] = {}
    for path in sorted(info.output_path.glob("part-*.jsonl")):
        for line in path.read_text().splitlines():
            word, count = json.loads(line)
            assert count == found.get(word, 0) + 1, (path, word, count)
            found[word] = count
    return found


def wait_for_checkpoint(info: RunInfo, number: int) -> None:
    deadline = monotonic() + LIMIT_S
    while max(numbers(Posix(), str(info.checkpoints_path)), default=0) < number:
        assert monotonic() < deadline, "no checkpoint came"
        sleep(0.05)


def begin(terminal: Callable[..., Terminal], tmp_path: Path) -> tuple[Terminal, RunInfo]:
    run = terminal("run", "resumed_app:make", "--rate", 400, "--checkpoint-every", 0.4)
    run.until("running:")
    info = latest(tmp_path / "runs")
    wait_for_checkpoint(info, 3)
    return run, info


def kill(run: Terminal) -> None:
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()


def test_a_killed_driver_is_resumed_with_nothing_lost_or_doubled(
    terminal: Callable[..., Terminal], penstock: Penstock, tmp_path: Path
) -> None:
    run, info = begin(terminal, tmp_path)
    refused = terminal("runs", "resume", info.run).end()
    assert refused.code == 2
    assert f"error: run {info.run} is being run by process {run.process.pid} on " in refused.err
    kill(run)
    seen = sum(published(info).values())
    assert seen > 0
    ran = penstock("status", info.path)
    assert "died: its driver" in ran.out
    assert f"penstock runs resume {info.path}" in ran.out

    again = terminal("runs", "resume", info.run, "--duration", 2)
    again.until(f"run {info.run} continues from checkpoint ")
    ended = again.end()
    assert ended.code == 0, ended.err
    found = published(info)
    sentences = sum(found.values()) // 5
    assert 5 * sentences > seen
    assert found == truth(sentences)
    assert (load(info.path).resumed, load(info.path).run) == (1, info.run)

    over = penstock("runs", "resume", info.path)
    assert (over.code, "there is nothing to resume" in over.err) == (2, True)
    run.wait_until_alone()
    again.wait_until_alone()


def test_skips_a_damaged_checkpoint_and_resumes_a_run_that_was_stopped_at_once(
    terminal: Callable[..., Terminal], penstock: Penstock, tmp_path: Path
) -> None:
    run, info = begin(terminal, tmp_path)
    ran = penstock("stop", info.path, "--now")
    assert f"has ended; next: penstock runs resume {info.path}" in ran.out
    assert "resumes from checkpoint" in run.end().out
    last = max(numbers(Posix(), str(info.checkpoints_path)))
    damage(info, last, load_manifest(Posix(), str(info.checkpoints_path), last).tasks[0].file)

    again = terminal("runs", "resume", info.path, "--duration", 1)
    ended = again.end()
    assert ended.code == 0, ended.err
    assert f"warning: checkpoint {last} cannot be used: " in ended.err
    assert f"continues from checkpoint {last - 1}, " in ended.err
    found = published(info)
    assert found == truth(sum(found.values()) // 5)
