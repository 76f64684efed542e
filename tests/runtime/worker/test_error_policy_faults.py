"""Error policies where anything may fail: what is skipped is published as exactly once as what is not."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.api.contracts import Operator, TaskContext
from penstock.api.dataflow import Dataflow, Outlet
from penstock.testing import applications
from penstock.testing.applications import Count, Emitted, Environment, Parts, Rows, own_keys
from penstock.testing.fault_schedule import FaultSchedule, draw_policies, draw_schedule
from penstock.testing.faults import FaultyCluster

SCHEDULES = 150


class Letters(Parts):
    """Writes the tuples that were skipped as rows of their own."""

    def write(self, values: Sequence[ps.DeadLetter]) -> None:
        super().write([(f"skipped {letter.tuple[0]}", letter.tuple[1], 0) for letter in values])


class Unsteady(Operator[tuple[str, int], tuple[str, int]]):
    """Raises on every third number, and once on each of the others that five divides."""

    def open(self, context: TaskContext) -> None:
        self.raised: set[tuple[str, int]] = set()

    def process(self, value: tuple[str, int]) -> Iterable[tuple[str, int]]:
        if value[1] % 3 == 0:
            raise ValueError("three")
        if value[1] % 5 == 0 and value not in self.raised:
            self.raised.add(value)
            raise ConnectionError("not now")
        return (value,)

    def snapshot(self) -> None:
        """Return nothing: whether it has raised on a number before makes no difference in the end."""


def guarded(flow: Dataflow, place: Environment, numbers: Outlet) -> Any:
    policy = ps.Retry(times=2, wait=0.003, then=ps.Skip())
    kind = tuple[str, int]
    steady = flow.operator("steady", Unsteady, numbers.fields(0), parallelism=2, emits=kind, errors=policy)
    flow.parts["steady"] = replace(flow.parts["steady"], letters=lambda: Letters(place))
    counts = flow.operator("count", Count, steady.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.fields(0), parallelism=2)
    return expected


def expected(given: Emitted, _ended: bool) -> Rows:
    rows: Rows = {}
    for task, count in enumerate(given.values()):
        for number in range(count):
            key, _ = own_keys(task, number)
            if number % 3 == 0:
                rows.setdefault(f"skipped {key}", []).append((f"skipped {key}", number, 0))
            else:
                before = rows.setdefault(key, [])
                before.append((key, len(before) + 1, number))
    return rows


def a_schedule(seed: int) -> FaultSchedule:
    drawn = draw_schedule(seed)
    rng = random.Random(seed)
    slots = [f"w{number}/{slot}" for number, count in drawn.sites for slot in range(count)]
    layout = applications.known_application("guarded", drawn.tuples).layout
    placement = tuple(rng.choice(slots) for _ in layout.components)
    policies = draw_policies(rng, layout.application)
    return replace(drawn, application="guarded", placement=placement, policies=policies)


@pytest.mark.slow
def test_skips_exactly_once_under_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(applications._MADE, "guarded", (guarded, own_keys))
    faults = 0
    for seed in range(SCHEDULES):
        cluster = FaultyCluster(a_schedule(seed))
        try:
            cluster.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        faults += sum(cluster.counts.values())
    applications.known_application.cache_clear()
    assert faults > SCHEDULES
