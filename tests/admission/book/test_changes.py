"""Rates after elements fail, recover or change, and after applications leave."""

import pytest

from penstock.admission import (
    Admitted,
    admit,
    compute_shares,
    fail,
    measure_usage,
    release,
    reprioritise,
    restore,
    set_capacity,
)
from penstock.model.book import Book
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.topology import Application
from tests.admission.book.cases import application, book


def with_applications(start: Book, *wanted: Application) -> Book:
    for one in wanted:
        found = admit(start, one)
        assert isinstance(found, Admitted), found
        start = found.book
    return start


def test_a_best_effort_rate_moves_to_the_paths_that_survive() -> None:
    both = with_applications(book(fails=0.1), application(availability=0.95))
    assert both["flow"].rate_tps == pytest.approx(14.0)
    broken = fail(both, "b")
    assert [path.rate_tps for path in broken.book["flow"].paths] == pytest.approx([0.0, 4.0])
    (change,) = broken.rates
    assert change.application == "flow"
    assert (change.before_tps, change.after_tps) == pytest.approx((14.0, 4.0))
    assert broken.unmet == ()
    mended = restore(broken.book, "b")
    assert mended.book["flow"] == both["flow"]
    assert mended.book.version == both.version + 2


def test_no_path_left_is_a_rate_of_nothing() -> None:
    broken = fail(with_applications(book(), application()), "a--b")
    assert broken.book["flow"].rate_tps == 0.0


def test_surviving_guaranteed_paths_keep_their_rates_and_the_rest_is_reported() -> None:
    both = with_applications(book(), application("gr", rate=12.0))
    broken = fail(both, "c--d")
    assert [path.rate_tps for path in broken.book["gr"].paths] == pytest.approx([10.0, 0.0])
    (short,) = broken.unmet
    assert short.application == "gr"
    assert (short.wanted_tps, short.rate_tps) == pytest.approx((12.0, 10.0))
    assert restore(broken.book, "c--d").unmet == ()
    assert restore(broken.book, "c--d").book["gr"] == both["gr"]


def test_what_is_kept_for_a_path_that_has_failed_is_not_given_away() -> None:
    start = with_applications(book(), application("gr", rate=9.0), application("be"))
    before = start["be"].rate_tps
    broken = fail(start, "a--b").book
    newcomer = admit(restore(broken, "a--b").book, application("late", rate=9.0), advise=False)
    assert not isinstance(newcomer, Admitted)
    assert restore(broken, "a--b").book["be"].rate_tps == pytest.approx(before)


def test_guarantees_met_before_stay_reported_as_unmet_while_they_are() -> None:
    start = with_applications(book(), application("gr", rate=12.0), application("be"))
    broken = fail(start, "b").book
    again = fail(broken, "c--d")
    assert [u.application for u in again.unmet] == ["gr"]


def test_of_guarantees_on_too_little_capacity_the_last_to_come_gives_way() -> None:
    start = with_applications(book(), application("one", rate=6.0), application("two", rate=4.0))
    narrowed = set_capacity(start, "a--b", 0.7)
    assert narrowed.book["one"].rate_tps == pytest.approx(6.0)
    assert narrowed.book["two"].rate_tps == pytest.approx(1.0)
    assert [u.application for u in narrowed.unmet] == ["two"]
    assert set_capacity(narrowed.book, "a--b", 1.0).book.bookings == start.bookings


def test_best_effort_gets_what_a_changed_capacity_leaves() -> None:
    start = with_applications(book(), application("gr", rate=6.0), application("be"))
    assert set_capacity(start, "a--b", 2.0).book["be"].rate_tps == pytest.approx(4.0)  # b--d is as narrow as before
    assert set_capacity(start, "a--b", 0.8).book["be"].rate_tps == pytest.approx(2.0)
    assert set_capacity(start, "a--b", 0.5).book["be"].rate_tps == 0.0


def test_another_priority_gives_another_share() -> None:
    start = with_applications(book(), application("one"), application("two"))
    assert start["one"].rate_tps == pytest.approx(start["two"].rate_tps)
    after = reprioritise(start, "one", 3.0)
    assert after["one"].rate_tps == pytest.approx(3 * after["two"].rate_tps)
    assert after["one"].priority == 3.0
    assert after.version == start.version + 1


def test_a_released_share_goes_to_the_others() -> None:
    start = with_applications(book(), application("one"), application("two"), application("gr", rate=2.0))
    assert release(start, "two")["one"].rate_tps == pytest.approx(8.0)
    assert release(release(start, "two"), "gr")["one"].rate_tps == pytest.approx(10.0)
    assert release(release(release(start, "two"), "gr"), "one").bookings == ()


def test_shares_are_the_booked_rates() -> None:
    start = with_applications(book(), application("one", priority=2.0), application("gr", rate=2.0), application("two"))
    found = compute_shares(start)
    assert found.rates == {b.name: pytest.approx([p.rate_tps for p in b.paths]) for b in start.bookings}
    full = {use.element for use in measure_usage(start) if use.utilisation > 1 - 1e-9}
    assert {element for element, _ in found.prices} <= full


def test_usage_adds_up_to_what_paths_take() -> None:
    start = with_applications(book(), application("gr", rate=3.0), application("be"))
    by_name = {(use.element, use.kind): use for use in measure_usage(start)}
    wide = by_name["a--b", "link"]
    assert (wide.capacity, wide.guaranteed, wide.best_effort) == pytest.approx((10e6, 3e6, 7e6))
    assert wide.utilisation == pytest.approx(1.0)
    assert by_name["c", "machine"].utilisation == 0.0
    dark = {(use.element, use.kind): use for use in measure_usage(fail(start, "b").book)}["b", "machine"]
    assert (dark.capacity, dark.guaranteed, dark.best_effort, dark.utilisation) == (0.0, 0.0, 0.0, 0.0)


def test_refuses_what_is_not_there() -> None:
    start = book()
    with pytest.raises(UnknownName, match="element: 'diamond' has no machine, switch or link 'a--z'"):
        fail(start, "a--z")
    with pytest.raises(UnknownName, match="element"):
        restore(start, "z")
    with pytest.raises(UnknownName, match="element"):
        set_capacity(start, "z", 0.5)
    for change in (release, lambda some, name: reprioritise(some, name, 2.0)):
        with pytest.raises(UnknownName, match="application: the book has none named 'x'"):
            change(start, "x")


def test_refuses_changes_that_make_no_sense() -> None:
    start = with_applications(book(), application("gr", rate=1.0), application("be"))
    with pytest.raises(InvalidInput, match="'a' has not failed"):
        restore(start, "a")
    with pytest.raises(InvalidInput, match="'a' has already failed"):
        fail(fail(start, "a").book, "a")
    for factor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="factor: expected a number > 0"):
            set_capacity(start, "a", factor)
    with pytest.raises(InvalidInput, match="priority: expected a number ≥ 1e-06, got -2"):
        reprioritise(start, "be", -2.0)
    with pytest.raises(InvalidInput, match="'gr' has a guaranteed rate"):
        reprioritise(start, "gr", 2.0)
