"""Availabilities at current capacities."""

from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.admission import (
    Admitted,
    admit,
    fail,
    find_unmet,
    release,
    replan,
    reprioritise,
    restore,
    set_capacity,
)
from penstock.admission.book.sharing import current_availability
from penstock.model.book import Book, Booking
from penstock.model.topology import Application
from tests.admission.book.cases import application, book, fan


def admitted(start: Book, *wanted: Application) -> Book:
    for one in wanted:
        found = admit(start, one, advise=False)
        assert isinstance(found, Admitted), found
        start = found.book
    return start


def enumerated(start: Book, booking: Booking) -> float:
    """Return the availability from all states of all elements that may fail, with the rates that the book has in each.

    Only right where no capacity is contended for by guaranteed paths, as those that work come first.
    """
    fails = start.failure_probabilities
    may_fail = sorted({name for path in booking.paths for name in path.elements if fails[name] > 0})
    total = 0.0
    for state in product((False, True), repeat=len(may_fail)):
        down = [name for name, gone in zip(may_fail, state, strict=True) if gone]
        now = start
        for name in down:
            now = fail(now, name).book
        rate = now[booking.name].rate_tps
        if rate > 0 if booking.wanted_tps is None else rate >= booking.wanted_tps * (1 - 1e-9):
            total += float(
                np.prod([fails[n] if gone else 1 - fails[n] for n, gone in zip(may_fail, state, strict=True)])
            )
    return total


def test_a_guarantee_that_holds_too_seldom_after_a_capacity_has_fallen_is_unmet() -> None:
    start = admitted(book(fails=0.1), application("gr", rate=4.0, availability=0.98))
    assert start["gr"].achieved_availability == pytest.approx(0.99)
    changed = set_capacity(start, "a--c", 0.5)  # 2/s over c, though 4/s are still carried over b
    assert changed.book["gr"].rate_tps == pytest.approx(6.0)
    assert changed.book["gr"].achieved_availability == pytest.approx(0.9)
    (missed,) = changed.unmet
    assert (missed.application, missed.short, missed.seldom) == ("gr", False, True)
    assert missed.availability == 0.98
    assert missed.achieved_availability == pytest.approx(0.9)
    mended = set_capacity(changed.book, "a--c", 1.0)
    assert mended.unmet == ()
    assert mended.book.bookings == start.bookings


def test_replans_a_guarantee_whose_availability_is_too_low() -> None:
    start = admitted(fan(3, fails=0.1), application("gr", rate=4.0, availability=0.98))
    used = [element for path in start["gr"].paths for element in path.elements if element.startswith("m")]
    changed = set_capacity(start, used[0], 0.1)
    assert [missed.seldom for missed in changed.unmet] == [True]
    again = replan(changed.book, "gr")
    assert isinstance(again, Admitted)
    assert find_unmet(again.book) == ()
    assert again.booking.achieved_availability == pytest.approx(0.99)


def test_a_best_effort_path_that_can_have_nothing_does_not_count() -> None:
    start = admitted(book(fails=0.1), application("be", availability=0.98))
    taken = admitted(start, application("gr", rate=10.0))  # all of the way over b
    assert taken["be"].rate_tps == pytest.approx(4.0)
    assert taken["be"].achieved_availability == pytest.approx(0.9)
    assert [(missed.application, missed.wanted_tps, missed.seldom) for missed in find_unmet(taken)] == [
        ("be", None, True)
    ]
    assert release(taken, "gr")["be"] == start["be"]
    everything = admitted(taken, application("more", rate=4.0))
    assert everything["be"].achieved_availability == 0.0


def test_a_failure_is_counted_by_its_probability_whether_or_not_it_is_there_now() -> None:
    start = admitted(book(fails=0.1), application("gr", rate=4.0, availability=0.98), application("be"))
    broken = fail(start, "b")
    assert broken.unmet == ()
    for name in ("gr", "be"):
        assert broken.book[name].achieved_availability == start[name].achieved_availability
    narrowed = set_capacity(broken.book, "a--c", 0.5)
    (missed,) = narrowed.unmet
    assert (missed.short, missed.seldom) == (True, True)
    assert restore(narrowed.book, "b").book["gr"].achieved_availability == pytest.approx(0.9)


def test_applications_without_a_requested_availability_are_never_unmet() -> None:
    start = admitted(book(fails=0.1), application("gr", rate=12.0), application("be"))
    assert find_unmet(set_capacity(start, "d", 0.9).book) == ()
    assert find_unmet(reprioritise(start, "be", 2.0)) == ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_what_the_book_gives_in_every_state(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = fan(4, fails=0.2)
    first = application("gr", rate=float(rng.uniform(2.0, 6.0)), availability=0.9)
    start = admitted(start, first, application("be", availability=0.9))
    for _ in range(3):
        element = str(rng.choice([f"m{n}" for n in range(4)] + [f"a--m{n}" for n in range(4)]))
        start = set_capacity(start, element, float(rng.choice([0.2, 0.3, 0.5, 1.0]))).book
        for booking in start.bookings:
            assert booking.achieved_availability == pytest.approx(enumerated(start, booking), abs=1e-9)


def test_an_estimate_is_repeated_with_the_same_draws() -> None:
    found = admit(fan(24, fails=0.7), application("be", availability=0.998), paths=24, estimate=True)
    assert isinstance(found, Admitted)
    booking, fails = found.booking, found.book.failure_probabilities
    number = len(booking.paths)
    assert number > 17
    assert current_availability(booking, fails) == booking.achieved_availability
    fewer = replace(booking, paths=(replace(booking.paths[0], kept_share=0.0), *booking.paths[1:]))
    assert 1 - 2 * 0.7 ** (number - 1) < current_availability(fewer, fails) < 1 - 0.7 ** (number - 1)
