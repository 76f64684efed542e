"""Priorities that are far apart work; those that cannot be represented are refused."""

import pytest

from penstock.admission import Admitted, admit, reprioritise
from penstock.model.errors import InvalidInput
from tests.admission.book.cases import application, book

LOWEST, HIGHEST = 1e-6, 1e9


@pytest.mark.parametrize(("great", "small"), [(1e9, 1.0), (1.0, LOWEST), (HIGHEST, LOWEST)])
def test_admits_a_small_priority_beside_a_large_one(great: float, small: float) -> None:
    first = admit(book(), application("great", priority=great))
    assert isinstance(first, Admitted)
    second = admit(first.book, application("small", priority=small))
    assert isinstance(second, Admitted), second
    rates = {booking.name: booking.rate_tps for booking in second.book.bookings}
    assert rates["small"] > 0
    assert sum(rates.values()) <= 14.0 * (1 + 1e-9)


def test_a_path_on_what_a_small_share_leaves_is_not_taken_for_rounding() -> None:
    start = book(fails=0.1)
    for number in range(3):
        result = admit(start, application(f"great{number}", priority=1e9, availability=0.95))
        assert isinstance(result, Admitted)
        start = result.book
    small = admit(start, application("small", priority=LOWEST, availability=0.95))
    assert isinstance(small, Admitted), small
    assert len(small.booking.paths) == 2
    assert small.booking.achieved_availability == pytest.approx(0.99)


@pytest.mark.parametrize("priority", [1e-300, LOWEST / 10, HIGHEST * 10])
def test_a_priority_out_of_reach_is_refused_when_alone_too(priority: float) -> None:
    with pytest.raises(InvalidInput, match=r"priority: expected a number [≥≤]"):
        application("one", priority=priority)
    alone = admit(book(), application("one"))
    assert isinstance(alone, Admitted)
    with pytest.raises(InvalidInput, match=r"priority: expected a number [≥≤]"):
        reprioritise(alone.book, "one", priority)
