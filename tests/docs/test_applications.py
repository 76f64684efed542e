"""The code of the guide to applications runs, and does what the guide states."""

import re
import sqlite3
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock as ps
from penstock import testing
from penstock.cli.flows import find_flow
from tests import ROOT

TEXT = (ROOT / "docs" / "guides" / "applications.md").read_text()


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Execute all Python of the page, in order, as one module."""
    module = ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)  # where annotations are looked up
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(code, "writing-applications.md", "exec"), module.__dict__)
    return module.__dict__


def test_its_first_dataflow_runs_and_takes_a_rate(guide: dict[str, Any]) -> None:
    flow = find_flow("guide:make", rate=500.0)
    assert flow.application.rate_tps == {"lines": 500.0}
    stored = testing.run(guide["make"](count=50))["store"]
    assert len(stored) == 45
    assert stored[0].page.startswith("/page")


@pytest.mark.slow
def test_its_own_tests_pass(guide: dict[str, Any]) -> None:
    guide["test_counts_pages_every_second"]()
    for seed in range(3):
        guide["test_loses_nothing_when_tasks_move"](seed)
    guide["test_emulates_machines"]()


def test_its_counter_gives_a_row_a_second_and_page(guide: dict[str, Any]) -> None:
    rows = testing.run(guide["flow"])["table"]
    assert len(rows) >= 3 * 9  # pages and whole seconds
    assert {page for page, _ in rows} == {"/page0", "/page1", "/page2"}


def test_its_keyed_operators_count_visits_and_end_sessions(guide: dict[str, Any]) -> None:
    cluster = testing.TestCluster(guide["counting"], workers=2).start()
    cluster.advance(3.0)
    result = cluster.drain()
    assert len(result["counts"]) == result.status.emitted
    latest = dict(result["counts"])
    assert sum(latest.values()) == result.status.emitted
    users = result.status.emitted // 20
    assert sorted(result["sessions-out"])[:5] == [(f"user{user}", 20) for user in (0, 1, 10, 11, 2)]
    assert users - 6 <= len(result["sessions-out"]) < users


def test_its_direct_stream_goes_where_the_sender_says(guide: dict[str, Any]) -> None:
    cluster = testing.TestCluster(guide["laned"], telemetry=True, sample_tps=-1).start()
    hops = [record for record in cluster.finish().records if record.kind == "hop"]
    taken = [sum(record.task == f"lanes[{task}]" for record in hops) for task in range(3)]
    expected = [guide["to_lane"](guide["Visit"](f"user{i % 5}", "/" * (i % 4)))[0] for i in range(100)]
    assert taken == [expected.count(task) for task in range(3)]


def test_its_source_continues_after_a_move(guide: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("create table notes (text text)")
    database.executemany("insert into notes values (?)", [(f"note {number}",) for number in range(20)])
    flow = ps.Dataflow("notes")
    rows = flow.source("rows", guide["Rows"](str(path)), parallelism=2)
    flow.sink("out", ps.Discard(), rows)
    cluster = testing.TestCluster(flow, workers=2).start()
    cluster.advance(1.0)
    cluster.move("rows[0]", "w1/0")
    database.execute("insert into notes values ('the last')")
    database.close()
    cluster.advance(1.0)
    given = cluster.drain()["out"]
    assert sorted(given) == [*((number + 1, f"note {number}") for number in range(20)), (21, "the last")]


def test_its_source_is_rejected_without_a_file(guide: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ps.PenstockError, match="no such database"):
        guide["Rows"](str(tmp_path / "none.db")).check()


def test_its_sink_keeps_its_output_after_a_move(guide: dict[str, Any], tmp_path: Path) -> None:
    flow = ps.Dataflow("latest")
    pairs = flow.source("pairs", ps.Generated(lambda i: (f"n{i % 4}", i), rate=100, count=100), emits=tuple[str, int])
    flow.sink("out", guide["Table"]("latest"), pairs.fields(0), parallelism=2)
    cluster = testing.TestCluster(flow, workers=2, capture=False, folder=str(tmp_path)).start()
    cluster.advance(0.5)
    cluster.move("out[0]", "w0/0")
    cluster.move("out[1]", "w0/0")
    cluster.finish()
    kept: dict[str, int] = {}
    for file in tmp_path.glob("latest-*.db"):
        database = sqlite3.connect(file)
        kept.update(database.execute("select name, number from latest").fetchall())
        database.close()
    assert kept == {"n0": 96, "n1": 97, "n2": 98, "n3": 99}


def test_its_files_contain_each_row_once_after_a_move(guide: dict[str, Any], tmp_path: Path) -> None:
    flow = ps.Dataflow("rows")
    rows = flow.source("rows", ps.Generated(lambda i: (i, f"n{i}"), rate=100, count=100), emits=tuple[int, str])
    flow.sink("out", guide["Csv"]("table", ["number", "name"]), rows)
    cluster = testing.TestCluster(flow, workers=2, capture=False, folder=str(tmp_path)).start()
    for slot in ("w0/0", "w1/0"):
        cluster.advance(0.3)
        cluster.move("out[0]", slot)
    cluster.finish()
    files = sorted((tmp_path / "table").glob("part-out-0-*.csv"))
    written = [file.read_text().splitlines() for file in files]
    assert [lines[0] for lines in written] == ["number,name"] * len(files)
    assert [line for lines in written for line in lines[1:]] == [f"{i},n{i}" for i in range(100)]


def test_it_states_the_guarantee_of_its_application(guide: dict[str, Any]) -> None:
    reported = [str(promise) for promise in ps.guarantees(guide["flow"])]
    assert "sink 'bad' (Console): at least once after a failure: its output cannot be withdrawn" in reported
    assert all(promise.exactly_once for promise in ps.guarantees(guide["make"]()))


def test_an_operator_that_raises_fails_as_it_says(guide: dict[str, Any]) -> None:
    flow = ps.Dataflow("broken")
    numbers = flow.source("numbers", ps.Generated(lambda i: i - 3, count=10), emits=int)
    flow.sink("out", ps.Discard(), flow.map("inverse", lambda number: 1 / number, numbers, emits=float))
    with pytest.raises(testing.ApplicationFailed, match=r"(?s)inverse\[0\].*ZeroDivisionError.* on tuple 0.*Traceback"):
        testing.run(flow)


def test_an_operator_with_state_and_no_snapshot_is_not_moved(guide: dict[str, Any]) -> None:
    class Forgetful(ps.Operator[int, int]):
        def __init__(self) -> None:
            self.total = 0

        def process(self, value: int) -> None:
            self.total += value

    flow = ps.Dataflow("forgetful")
    numbers = flow.source("numbers", ps.Generated(lambda i: i, rate=100), emits=int)
    flow.sink("out", ps.Discard(), flow.operator("sum", Forgetful, numbers))
    cluster = testing.TestCluster(flow, workers=2).start()
    cluster.advance(1.0)
    with pytest.raises(ps.PenstockError, match="no snapshot"):
        cluster.move("sum[0]", "w0/0")


def test_its_careful_dataflow_skips_what_cannot_be_parsed(guide: dict[str, Any]) -> None:
    result = testing.run(guide["careful"])
    assert len(result["store"]) == 900
    assert [letter.tuple for letter in result.letters["parse"]] == ["?"] * 100
