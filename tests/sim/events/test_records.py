"""Telemetry of the twin: the pipeline accepts its records, and computes the same latencies from them."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.model.telemetry import REQUIRED, VERSION, RecordKind, arrow_schema
from penstock.sim.events import Twin, TwinRun, TwinSpan
from tests.sim.events.cases import EXPONENTIAL, three_machines, word_count

SLOTS = [6, 7, 0, 7, 4, 4, 5, 2, 8, 0]
IN_ORDER = ("emitted", "sent", "arrived", "started", "finished")

Row = dict[str, Any]


@pytest.fixture(scope="module")
def recorded() -> tuple[TwinRun, TwinSpan, pa.Table]:
    run = Twin(word_count(100.0, (EXPONENTIAL,) * 4), three_machines()).start(SLOTS, seed=1, records=-1.0, name="a-run")
    span = run.advance(5.5)
    return run, span, run.records()


def of_kind(table: pa.Table, kind: RecordKind) -> list[Row]:
    return [row for row in table.to_pylist() if row["kind"] == kind]


@pytest.mark.slow
def test_records_have_the_schema_and_their_required_columns(recorded: tuple[TwinRun, TwinSpan, pa.Table]) -> None:
    table = recorded[2]
    assert table.schema.equals(arrow_schema())
    for row in table.to_pylist():
        assert row["run"] == "a-run"
        assert row["version"] == VERSION
        assert all(row[field.name] is not None for field in arrow_schema() if not field.nullable)
        assert all(row[name] is not None for name in REQUIRED[row["kind"]]), row
        numbers = [value for value in row.values() if isinstance(value, float)]
        assert np.isfinite(numbers).all()
    for row in of_kind(table, RecordKind.HOP):
        times = [row[name] for name in IN_ORDER]
        assert times == sorted(times)


def test_trees_rebuilt_from_hops_have_the_latencies_of_the_run(recorded: tuple[TwinRun, TwinSpan, pa.Table]) -> None:
    _, span, table = recorded
    hops = defaultdict(list)
    for row in of_kind(table, RecordKind.HOP):
        hops[row["root"]].append(row)
    roots = {row["root"]: row for row in of_kind(table, RecordKind.ROOT)}
    done = of_kind(table, RecordKind.DONE)
    assert len(roots) == span.emitted
    assert len(done) == span.completed
    rebuilt = []
    for row in done:
        tree, root = hops[row["root"]], roots[row["root"]]
        assert len(tree) == 1 + 2 + 2  # a sentence, its two words, their two counts
        known = {hop["id"]: hop["finished"] for hop in tree} | {root["id"]: root["emitted"]}
        assert all(hop["emitted"] == known[hop["parent"]] for hop in tree)
        assert max(hop["finished"] for hop in tree) == row["finished"]
        rebuilt.append(row["finished"] - root["due"])
    assert np.array_equal(rebuilt, span.latencies)


def test_hops_and_intervals_add_up_to_the_span(recorded: tuple[TwinRun, TwinSpan, pa.Table]) -> None:
    _, span, table = recorded
    hops = of_kind(table, RecordKind.HOP)
    assert len(hops) == span.hops
    assert len({row["id"] for row in hops}) == len(hops)
    busy: dict[str, float] = defaultdict(float)
    processed: dict[str, int] = defaultdict(int)
    for row in of_kind(table, RecordKind.TASK):
        busy[row["task"]] += row["busy"]
        processed[row["task"]] += row["processed"]
    assert list(busy.values()) == pytest.approx(span.busy_s)
    assert list(processed.values()) == span.processed.tolist()
    machines = of_kind(table, RecordKind.MACHINE)
    assert len(machines) == 3 * 6  # five whole seconds and a half
    used = sum(row["busy"] * row["interval"] for row in machines if row["worker"] == "m1")
    assert used / 5.5 == pytest.approx(span.machine_cpu[1])
    assert sum(row["memory_mb"] for row in machines[-3:]) == 2 * 10 + 3 * 20 + 3 * 30 + 2 * 40
    described = three_machines().machines
    assert [row["capacity_cpu"] for row in machines[-3:]] == [machine.cpu for machine in described]
    assert [row["capacity_mb"] for row in machines[-3:]] == [machine.memory_mb for machine in described]


def test_the_requested_number_of_source_tuples_is_traced() -> None:
    run = Twin(word_count(80.0), three_machines()).start([1] * 10, seed=1, records=10.0)
    run.advance(20.0)
    table = run.records()
    followed = len(of_kind(table, RecordKind.ROOT))
    assert followed == pytest.approx(2 * 10 * 20, rel=0.15)
    assert len(run.records()) == 0


def test_actions_on_a_run_are_recorded() -> None:
    run = Twin(word_count(50.0), three_machines()).start(SLOTS, records=1.0)
    run.advance(1.0)
    run.move({0: 1})
    run.scale(2.0)
    run.fail("m2")
    run.restore("m2")
    events = [(row["at"], row["event"], row["detail"]) for row in of_kind(run.records(), RecordKind.EVENT)]
    assert [event for _, event, _ in events] == ["start", "move", "load", "failure", "restore"]
    assert events[1] == (1.0, "move", "source[0] m2/0 -> m0/1")


def test_hops_name_the_machine_that_sent_them_before_a_move() -> None:
    run = Twin(word_count(100.0), three_machines()).start([0] * 10, records=-1.0)
    run.advance(0.5)
    run.move(dict.fromkeys(range(10), 3))
    run.advance(2.0)
    pairs = {(row["source_worker"], row["worker"]) for row in of_kind(run.records(), RecordKind.HOP)}
    assert ("m0", "m0") in pairs
    assert ("m0", "m1") in pairs
    assert ("m1", "m0") not in pairs
