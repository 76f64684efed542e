"""Switches fail and recover: their links are unusable in between, and links keep their own state."""

import pytest

from penstock.admission import (
    Admitted,
    Refused,
    SuggestionKind,
    admit,
    fail,
    measure_usage,
    replan,
    restore,
    set_capacity,
)
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link
from penstock.model.errors import InvalidInput, UnknownName
from tests.admission.book.cases import application, switched


def both_ways(name: str = "gr", rate: float = 12.0) -> Book:
    """Return a book with a guarantee on both routes: 10/s over `east`, 2/s over `west`."""
    found = admit(switched(), application(name, rate=rate))
    assert isinstance(found, Admitted), found
    return found.book


def test_paths_over_a_failed_switch_stop_and_resume_when_it_recovers() -> None:
    book = both_ways()
    broken = fail(book, "east")
    assert [path.rate_tps for path in broken.book["gr"].paths] == pytest.approx([0.0, 2.0])
    (short,) = broken.unmet
    assert (short.wanted_tps, short.rate_tps) == pytest.approx((12.0, 2.0))
    assert [broken.book.failed_of(path) for path in broken.book["gr"].paths] == [("east",), ()]
    assert restore(broken.book, "east").book.bookings == book.bookings


def test_links_of_a_failed_switch_have_nothing_to_give_and_others_do() -> None:
    found = {one.element: one for one in measure_usage(fail(both_ways(), "east").book)}
    assert [found[name].capacity for name in ("a--east", "east--b")] == [0.0, 0.0]
    assert (found["b--d"].capacity, found["a--west"].capacity) == (10e6, 4e6)
    assert found["a--west"].utilisation == pytest.approx(0.5)


def test_best_effort_applications_share_what_is_left_without_the_switch() -> None:
    book = switched()
    for name in ("one", "two"):
        found = admit(book, application(name, availability=None))
        assert isinstance(found, Admitted)
        book = found.book
    ways = {name: book[name].paths[0].elements for name in ("one", "two")}
    over_east = [name for name, elements in ways.items() if "a--east" in elements]
    assert over_east
    broken = fail(book, "east").book
    assert [broken[name].rate_tps for name in over_east] == [0.0] * len(over_east)
    again = replan(broken, over_east[0])
    assert isinstance(again, Admitted)
    assert "a--west" in again.booking.paths[0].elements
    assert 0 < again.booking.rate_tps <= 4.0


def test_planning_again_goes_round_a_failed_switch_or_names_it() -> None:
    book = both_ways(rate=3.0)
    broken = fail(book, "east").book
    again = replan(broken, "gr")
    assert isinstance(again, Admitted)
    assert all(broken.works(path) for path in again.booking.paths)
    assert again.booking.rate_tps == pytest.approx(3.0)
    more = admit(broken, application("more", rate=6.0))
    assert isinstance(more, Refused)
    assert more.suggestions[0].kind is SuggestionKind.RESTORE
    assert more.suggestions[0].element == "east"
    assert isinstance(admit(restore(broken, "east").book, application("more", rate=6.0)), Admitted)


def test_names_the_failed_element_that_limits_a_partial_rate() -> None:
    ends = (("a", "d", 10.0), ("a", "x", 4.0), ("x", "y", 4.0), ("y", "d", 4.0))
    links = tuple(Link(source=u, target=v, bandwidth_mbps=width) for u, v, width in ends)
    machines = tuple(machine for machine in switched().cluster.machines if machine.name in ("a", "d"))
    round_about = Book(cluster=Cluster(name="round", machines=machines, switches=("x", "y"), links=links))
    found = admit(fail(round_about, "a--d").book, application(rate=6.0, work=0.01))
    assert isinstance(found, Refused)
    assert found.binding == "a--d"
    assert "carries 4/s of 6/s, limited by a--d (it has failed); restoring a--d would admit it" in found.reason


def test_a_network_without_its_switches_is_refused_with_what_has_failed() -> None:
    dark = fail(fail(switched(), "east").book, "west").book
    for asked in (application(rate=1.0), application()):
        found = admit(dark, asked)
        assert isinstance(found, Refused)
        assert found.binding in ("east", "west")
        assert f"switch {found.binding} has failed; restoring {found.binding} would admit it" in found.reason


def test_a_link_that_failed_by_itself_stays_failed_when_its_switch_returns() -> None:
    book = both_ways()
    both = fail(fail(book, "east").book, "east--b").book
    assert both.failed == ("east", "east--b")
    mended = restore(both, "east").book
    assert [path.rate_tps for path in mended["gr"].paths] == pytest.approx([0.0, 2.0])
    assert restore(mended, "east--b").book.bookings == book.bookings


def test_a_link_restored_before_its_switch_is_unusable() -> None:
    book = both_ways()
    both = fail(fail(book, "east--b").book, "east").book
    mended = restore(both, "east--b").book
    assert mended.failed == ("east",)
    assert "east--b" in mended.unusable
    assert [path.rate_tps for path in mended["gr"].paths] == pytest.approx([0.0, 2.0])
    assert restore(mended, "east").book.bookings == book.bookings


def test_refuses_what_makes_no_sense_for_a_switch() -> None:
    book = both_ways()
    with pytest.raises(InvalidInput, match="'east' is a switch and has no capacity of its own; name one of its links"):
        set_capacity(book, "east", 0.5)
    with pytest.raises(InvalidInput, match="'east' has already failed"):
        fail(fail(book, "east").book, "east")
    with pytest.raises(InvalidInput, match="'east--b' has not failed itself, but east has; restore that"):
        restore(fail(book, "east").book, "east--b")
    with pytest.raises(InvalidInput, match="'east--b' has not failed itself, but east and b have; restore them"):
        restore(fail(fail(book, "east").book, "b").book, "east--b")
    with pytest.raises(UnknownName, match=r"no machine, switch or link 'eats'; did you mean east\?"):
        fail(book, "eats")
    with pytest.raises(InvalidInput, match=r"capacities.east: 'east' is a switch"):
        Book(cluster=book.cluster, capacities={"east": 0.5})
