"""Applications admitted to real networks one after another: nothing is overbooked, and releases free everything."""

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from penstock.admission import Admitted, admit, fail, measure_usage, release, restore, set_capacity
from penstock.admission.book.free_capacity import find_free_capacity
from penstock.model.book import Book
from penstock.model.cluster import Cluster
from penstock.model.formats.repetita import read_network
from penstock.model.topology import Application, Component, Kind, Stream
from tests.shared_data import SHARED, needs_shared

SEED = 20


def abilene() -> Cluster:
    return read_network(SHARED / "networks" / "Abilene.graph", cores=4, slots=4)


def chain(name: str, cluster: Cluster, rng: np.random.Generator) -> Application:
    """Draw a chain whose ends are pinned; every other one is guaranteed a rate."""
    ends = rng.choice([machine.name for machine in cluster.machines], size=2, replace=False)
    work = rng.uniform(0.002, 0.02, size=3)
    size = rng.uniform(0.5e6, 4e6, size=4)
    parts = ["source", "one", "two", "three", "sink"]
    number = int(name[1:])
    return Application(
        name=name,
        components=(
            Component(name="source", kind=Kind.SOURCE, cpu=0.001, pinned=str(ends[0])),
            *(Component(name=part, cpu=float(cpu)) for part, cpu in zip(parts[1:4], work, strict=True)),
            Component(name="sink", kind=Kind.SINK, cpu=0.001, pinned=str(ends[1])),
        ),
        streams=tuple(
            Stream(source=a, target=b, tuple_bytes=float(amount))
            for a, b, amount in zip(parts[:-1], parts[1:], size, strict=True)
        ),
        guaranteed_tps=float(rng.uniform(5, 60)) if number % 2 else None,
        priority=float(rng.uniform(1, 3)),
    )


def check(book: Book) -> None:
    for use in measure_usage(book):
        assert use.guaranteed + use.best_effort <= use.capacity * (1 + 1e-6), use
    for booking in book.bookings:
        assert booking.rate_tps == pytest.approx(sum(path.rate_tps for path in booking.paths))
        if booking.wanted_tps is not None and not book.failed and not book.capacities:
            assert booking.rate_tps >= booking.wanted_tps * (1 - 1e-9)
    taken = {(use.element, use.kind): use.guaranteed + use.best_effort for use in measure_usage(book)}
    for key, amount in taken.items():
        expected = sum(
            path.rate_tps * path.load.get(key[0], {}).get(key[1], 0.0) for b in book.bookings for path in b.paths
        )
        assert amount >= expected * (1 - 1e-9)  # more where something is kept for a path that has failed


@needs_shared
def test_ten_applications_share_abilene() -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    book = Book(cluster=abilene())
    for number in range(10):
        before = book
        found = admit(book, chain(f"a{number}", book.cluster, rng), advise=False)
        if isinstance(found, Admitted):
            book = found.book
            assert book.version == before.version + 1
        check(book)
    guaranteed = [booking.name for booking in book.bookings if booking.guaranteed]
    assert len(book.bookings) >= 5
    assert guaranteed
    for name in guaranteed:
        without = release(book, name)
        check(without)
        kept = [booking for booking in book.bookings if booking.guaranteed and booking.name != name]
        assert [without[b.name] for b in kept] == kept
    empty = book
    for booking in book.bookings:
        empty = release(empty, booking.name)
        check(empty)
    assert empty.bookings == ()
    untouched = find_free_capacity(Book(cluster=book.cluster))
    assert find_free_capacity(empty) == untouched


@needs_shared
def test_a_guarantee_that_leaves_was_never_there() -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    book = Book(cluster=abilene())
    for number in (1, 3, 5):
        found = admit(book, chain(f"a{number}", book.cluster, rng), advise=False)
        book = found.book if isinstance(found, Admitted) else book
    best_effort = admit(book, chain("a0", book.cluster, rng))
    assert isinstance(best_effort, Admitted)
    book = best_effort.book
    later = admit(book, chain("a7", book.cluster, rng), advise=False)
    assert isinstance(later, Admitted)
    after = release(later.book, "a7")
    for booking in book.bookings:
        assert after[booking.name].rate_tps == pytest.approx(booking.rate_tps, rel=1e-9)


@pytest.mark.slow
@needs_shared
@seed(SEED)
@settings(max_examples=6)
@given(st.lists(st.tuples(st.sampled_from(["fail", "restore", "capacity"]), st.integers(0, 100)), max_size=8))
def test_no_change_of_the_network_overbooks_it(changes: list[tuple[str, int]]) -> None:
    rng = np.random.default_rng(SEED)
    book = Book(cluster=abilene())
    for number in range(4):
        found = admit(book, chain(f"a{number}", book.cluster, rng), advise=False)
        book = found.book if isinstance(found, Admitted) else book
    names = list(book.failure_probabilities)
    for what, number in changes:
        element = names[number % len(names)]
        if what == "capacity":
            book = set_capacity(book, element, 0.3 + number / 50).book
        elif (element in book.failed) == (what == "restore"):
            book = (restore if what == "restore" else fail)(book, element).book
        check(book)
