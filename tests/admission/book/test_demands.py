"""Best-effort applications that state what they offer: a share beyond that goes to the others."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.admission import Admitted, admit
from penstock.admission.book.sharing import compute_shares
from penstock.model.book import Book, BookedPath
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.files import save
from penstock.model.topology import Application, Component, Kind, Stream
from tests.conftest import Ran


def application(name: str, offers: float | None, at: str = "m0", cpu: float = 0.01) -> Application:
    """Return an application with a pinned operator, which determines the machines that applications share."""
    components = (
        Component(name="in", kind=Kind.SOURCE, pinned="camera"),
        Component(name="work", cpu=cpu, pinned=at),
        Component(name="out", kind=Kind.SINK, pinned="camera"),
    )
    streams = (Stream(source="in", target="work", tuple_bytes=1000.0), Stream(source="work", target="out"))
    rate = {} if offers is None else {"in": offers}
    return Application(name=name, components=components, streams=streams, rate_tps=rate)


def cluster(machines: int = 1) -> Cluster:
    there = (Machine(name="camera", speed=100.0), *(Machine(name=f"m{m}") for m in range(machines)))
    links = tuple(Link(source="camera", target=f"m{m}", bandwidth_mbps=1.0) for m in range(machines))
    return Cluster(name="small", machines=there, links=links)


def booked(book: Book, one: Application, priority: float = 1.0) -> Book:
    result = admit(book, replace(one, priority=priority))
    assert isinstance(result, Admitted), result
    return result.book


def test_a_demand_caps_a_share_and_the_rest_goes_to_the_others() -> None:
    book = booked(Book(cluster=cluster()), application("small", 5.0))
    assert book["small"].rate_tps == pytest.approx(5.0)  # 100/s would fit
    assert book["small"].sated
    book = booked(booked(book, application("a", None)), application("b", None), priority=2.0)
    rates = {booking.name: booking.rate_tps for booking in book.bookings}
    assert rates == pytest.approx({"small": 5.0, "a": 95 / 3, "b": 190 / 3})
    assert not book["a"].sated


def test_a_demand_beyond_the_share_changes_nothing() -> None:
    book = booked(booked(Book(cluster=cluster()), application("a", 1000.0)), application("b", None))
    assert [booking.rate_tps for booking in book.bookings] == pytest.approx([50.0, 50.0])
    assert not book["a"].sated


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_rates_maximise_the_utility_under_all_demands(seed: int) -> None:
    cvxpy: Any = import_module("cvxpy")  # untyped
    rng = np.random.default_rng(seed)
    book, number = Book(cluster=cluster(3)), int(rng.integers(3, 8))
    for one in range(number):
        offers = None if rng.random() < 0.3 else float(rng.uniform(1, 80))
        at = f"m{rng.integers(3)}"
        book = booked(
            book, application(f"a{one}", offers, at, float(rng.uniform(0.005, 0.03))), float(rng.uniform(0.5, 4))
        )
    rate = cvxpy.Variable(number)
    limits = [
        sum(path.load.get(element, {}).get(kind, 0.0) / amount * rate[n] for n, path in enumerate(paths(book))) <= 1.0
        for element, kind, amount in capacities(book)
    ]
    limits += [rate[n] <= one.demand_tps for n, one in enumerate(book.bookings) if one.demand_tps is not None]
    weights = np.array([booking.priority for booking in book.bookings])
    cvxpy.Problem(cvxpy.Maximize(weights @ cvxpy.log(rate)), [*limits, rate >= 0]).solve(solver=cvxpy.CLARABEL)
    assert [booking.rate_tps for booking in book.bookings] == pytest.approx(
        rate.value.tolist(), rel=1e-3
    )  # Clarabel's accuracy


def paths(book: Book) -> list[BookedPath]:
    return [booking.paths[0] for booking in book.bookings]


def capacities(book: Book) -> list[tuple[str, str, float]]:
    """Return what machines and links can do, from the cluster's description alone."""
    found = [(machine.name, "machine", machine.cores * machine.speed) for machine in book.cluster.machines]
    return found + [(link.label, "link", link.bandwidth_mbps * 1e6) for link in book.cluster.links]


def test_the_paths_of_one_application_share_its_demand() -> None:
    book = booked(Book(cluster=cluster(2)), application("one", 30.0))
    path = book["one"].paths[0]
    twice = replace(book, bookings=(replace(book["one"], paths=(path, path)),))
    assert sum(compute_shares(twice).rates["one"]) == pytest.approx(30.0)


def test_the_commands_print_what_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, penstock: Callable[..., Ran]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(cluster(), tmp_path / "small.toml")
    save(application("few", 5.0), tmp_path / "few.toml")
    reported = penstock("cluster", "admit", "few.toml", "small.toml", "--best-effort").out
    assert "admitted few: best effort, priority 1, offers 5.00/s" in reported
    assert "rate now 5.00/s over 1 path, all that it offers" in reported
    listed = json.loads(penstock("cluster", "book", "--json").out)
    assert [one["demand_tps"] for one in listed["applications"]] == [5.0]
