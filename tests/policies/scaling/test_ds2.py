"""DS2 against the examples that its authors publish, with their rates, and worked by hand from eqs. (7) and (8)."""

from math import ceil

import pytest

from penstock.model.topology import Application, Component, Kind, Stream
from tests.policies.scaling.views import line, resized_by, view_of

JOINED = Application(
    name="joined",
    components=(
        Component(name="left", kind=Kind.SOURCE),
        Component(name="right", kind=Kind.SOURCE),
        Component(name="op1"),
        Component(name="op2", kind=Kind.SINK),
    ),
    streams=(
        Stream(source="left", target="op1"),
        Stream(source="right", target="op1"),
        Stream(source="op1", target="op2"),
    ),
)
# The aggregated rates of the tests of the authors' implementation: what the sources emit, the true processing and
# output rates of op1, the true processing rate of op2, and the parallelism of both for one and for two such sources.
AUTHORS = [
    (100.0, 50.0, 400.0, 100.0, (2, 8), (4, 16)),
    (200.0, 40.0, 700.0, 99.0, (5, 36), (10, 71)),
    (200.0, 10.0, 700.0, 201.0, (20, 70), (40, 140)),
]


@pytest.mark.parametrize(("source", "op1", "emitted", "op2", "one", "two"), AUTHORS)
def test_agrees_with_the_authors_implementation(
    source: float, op1: float, emitted: float, op2: float, one: tuple[int, int], two: tuple[int, int]
) -> None:
    rates = {"source": 1e6, "left": 1e6, "right": 1e6, "op1": op1, "op2": op2}
    selectivity = {"op1->op2": emitted / op1}
    single = view_of(line(1, 1, 1), rates, target_tps=source, selectivity=selectivity)
    assert resized_by("ds2", single).parallelism == {"source": 1, "op1": one[0], "op2": one[1]}
    double = view_of(JOINED, rates, target_tps=2 * source, selectivity=selectivity)
    assert resized_by("ds2", double).parallelism == {"left": 1, "right": 1, "op1": two[0], "op2": two[1]}


def test_word_count_on_heron_needs_ten_splitters_and_twenty_counters() -> None:
    """Sizes Dhalion's benchmark: 10⁶ sentences of 20 words a minute; a splitter takes 10⁵ a minute, a counter 10⁶."""
    view = view_of(
        line(1, 1, 1),
        {"source": 1e9, "op1": 1e5 / 60, "op2": 1e6 / 60},
        target_tps=1e6 / 60,
        selectivity={"op1->op2": 20.0},
    )
    for factor in (1, 3):  # in one step, whatever the present parallelism
        grown = view_of(
            line(1, factor, factor),
            {"source": 1e9, "op1": 1e5 / 60, "op2": 1e6 / 60},
            target_tps=1e6 / 60,
            selectivity={"op1->op2": 20.0},
        )
        assert resized_by("ds2", grown).parallelism == {"source": 1, "op1": 10, "op2": 20}
    assert resized_by("ds2", view).note == "op1 1 -> 10, op2 1 -> 20"


FLINK = {  # true processing and output rates per task that the authors publish for word count on Flink, two epochs
    "splitter": [(122512.72886314773, 1244599.9522210688), (122613.65236651529, 1246045.8737637822)],
    "counter": 1845391.0738689527,
    "splitter later": [(131386.98088770403, 1334954.8320903534), (123157.48746087115, 1251393.4697232046)],
    "counter later": 1663458.7635021766,
}


@pytest.mark.parametrize("epoch", ["", " later"])
@pytest.mark.parametrize("rate", [79_980.0, 500_000.0, 2_000_000.0])
def test_word_count_on_flink_from_published_rates(epoch: str, rate: float) -> None:
    """Two splitters of unequal speed: their sum over their number is what (7) uses."""
    splitters, counter = FLINK[f"splitter{epoch}"], FLINK[f"counter{epoch}"]
    assert isinstance(splitters, list)
    assert isinstance(counter, float)
    processed, emitted = (sum(column) for column in zip(*splitters, strict=True))
    view = view_of(
        line(1, 2, 1),
        {"source": 1e9, "op1": 1.0, "op2": counter},
        target_tps=rate,
        selectivity={"op1->op2": emitted / processed},
        tasks={"op1": {task: {"true_tps": true} for task, (true, _) in enumerate(splitters)}},
    )
    needed = resized_by("ds2", view).parallelism
    assert needed["op1"] == ceil(rate / (processed / 2))
    assert needed["op2"] == ceil(rate * emitted / processed / counter)


def test_a_whole_number_of_tasks_is_not_rounded_up_further() -> None:
    view = view_of(line(1, 1, 1), {"source": 1e6, "op1": 0.1, "op2": 0.3}, target_tps=0.3)
    assert resized_by("ds2", view).parallelism == {"source": 1, "op1": 3, "op2": 1}


def test_leaves_a_reserve_on_request_and_sources_alone() -> None:
    view = view_of(line(1, 1, 1), {"source": 10.0, "op1": 100.0, "op2": 100.0}, target_tps=160.0)
    assert resized_by("ds2", view).parallelism == {"source": 1, "op1": 2, "op2": 2}
    assert resized_by("ds2:utilisation=0.5", view).parallelism == {"source": 1, "op1": 4, "op2": 4}
