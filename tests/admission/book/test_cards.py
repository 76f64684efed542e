"""Network cards of a mesh are booked separately for each direction."""

from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.admission import Admitted, Refused, admit, measure_usage
from penstock.estimate.evaluator import Evaluator
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Machine
from penstock.model.placement import Placement
from penstock.model.remaining import add_up, remaining
from penstock.model.topology import Application, Component, Kind, Stream

TWO = Cluster(name="two", machines=tuple(Machine(name=name, network_mbps=1.0) for name in "ab"))


def one_way(source: str, target: str, rate: float | None) -> Application:
    """Return a chain whose 8,000 bits a tuple cross the network once."""
    return Application(
        name=f"{source}-to-{target}",
        components=(
            Component(name="in", kind=Kind.SOURCE, pinned=source),
            Component(name="work", cpu=1e-5),
            Component(name="out", kind=Kind.SINK, pinned=target),
        ),
        streams=(
            Stream(source="in", target="work", tuple_bytes=1e3),
            Stream(source="work", target="out", tuple_bytes=1e3),
        ),
        guaranteed_tps=rate,
    )


@pytest.mark.parametrize("rate", [120.0, 125.0])
def test_traffic_in_one_direction_leaves_the_other_free(rate: float) -> None:
    first = admit(Book(cluster=TWO), one_way("a", "b", rate))
    assert isinstance(first, Admitted)
    back = admit(first.book, one_way("b", "a", rate), paths=1)
    assert isinstance(back, Admitted)
    cards = {(use.element, use.kind): use.guaranteed for use in measure_usage(back.book) if "network" in use.kind}
    assert list(cards.values()) == [pytest.approx(8e3 * rate)] * 4
    again = admit(back.book, replace(one_way("b", "a", 10.0), name="again"), advise=False)
    assert isinstance(again, Refused)


def test_best_effort_uses_the_free_direction() -> None:
    first = admit(Book(cluster=TWO), one_way("a", "b", 125.0))
    assert isinstance(first, Admitted)
    back = admit(first.book, one_way("b", "a", None))
    assert isinstance(back, Admitted)
    assert back.booking.rate_tps == pytest.approx(125.0)


def test_the_best_path_on_cards_that_differ_by_direction_is_what_trying_everything_finds() -> None:
    three = Cluster(name="three", machines=tuple(Machine(name=name, speed=0.5, network_mbps=1.0) for name in "abc"))
    first = admit(Book(cluster=three), one_way("a", "c", 90.0))
    assert isinstance(first, Admitted)
    wanted = Application(
        name="wanted",
        components=(
            Component(name="in", kind=Kind.SOURCE, pinned="a"),
            Component(name="one", cpu=0.004),
            Component(name="two", cpu=0.006),
            Component(name="out", kind=Kind.SINK, pinned="a"),
        ),
        streams=tuple(
            Stream(source=here, target=there, tuple_bytes=size)
            for here, there, size in (("in", "one", 200.0), ("one", "two", 3000.0), ("two", "out", 900.0))
        ),
    )
    left = remaining(three, add_up([(first.booking.paths[0].load, 90.0)]))
    assert left.machines[0].receive_mbps == pytest.approx(1.0)
    evaluator = Evaluator(wanted, left)
    rates = [evaluator.evaluate(Placement((0, *middle, 0))).throughput_tps for middle in product(range(3), repeat=2)]
    found = admit(first.book, wanted, policy="optimal", paths=1)
    assert isinstance(found, Admitted)
    assert found.booking.rate_tps == pytest.approx(max(rates))
    assert np.unique(np.round(rates, 6)).size > 3
