"""Suggestions of a rejection suffice, and slightly less would not."""

import pytest
from msgspec.structs import replace

from penstock.admission import Admitted, Refused, Suggestion, SuggestionKind, admit, fail, release
from penstock.model.book import Book
from penstock.model.cluster import Link, Machine
from penstock.model.topology import Application
from tests.admission.book.cases import application, book


def refused(book: Book, wanted: Application) -> Refused:
    found = admit(book, wanted)
    assert isinstance(found, Refused), found
    return found


def of_kind(found: Refused, kind: SuggestionKind) -> Suggestion:
    return next(remedy for remedy in found.suggestions if remedy.kind is kind)


def with_increase(book: Book, remedy: Suggestion, share: float = 1.0) -> Book:
    """Increase an element's capacity by a share of the suggestion."""
    for change in (remedy, *remedy.also):
        amount = change.before + share * (change.after - change.before)
        machines = tuple(
            replace(m, speed=amount / m.cores) if m.name == change.element else m for m in book.cluster.machines
        )
        links = tuple(replace(k, bandwidth_mbps=amount) if k.label == change.element else k for k in book.cluster.links)
        book = replace(book, cluster=replace(book.cluster, machines=machines, links=links))
    return book


def lets_in(book: Book, wanted: Application) -> bool:
    return isinstance(admit(book, wanted, advise=False), Admitted)


@pytest.mark.slow
def test_the_best_rate_can_be_had_and_no_more() -> None:
    found = refused(book(), application(rate=20.0))
    best = of_kind(found, SuggestionKind.RATE).after
    assert best == pytest.approx(14.0, rel=1e-3)
    assert lets_in(book(), application(rate=best))
    assert not lets_in(book(), application(rate=best * 1.01))


@pytest.mark.slow
def test_the_best_rate_keeps_the_availability() -> None:
    found = refused(book(fails=0.1), application(rate=12.0, availability=0.95))
    assert of_kind(found, SuggestionKind.RATE).after == pytest.approx(4.0, rel=1e-3)
    assert of_kind(found, SuggestionKind.AVAILABILITY).after == pytest.approx(0.81, rel=1e-3)
    assert lets_in(book(fails=0.1), application(rate=4.0, availability=0.95))
    assert lets_in(book(fails=0.1), application(rate=12.0, availability=0.81))


def test_names_one_narrow_link_and_its_increase() -> None:
    narrow = book()
    links = tuple(replace(k, bandwidth_mbps=2.0) if k.label == "a--b" else k for k in narrow.cluster.links)
    narrow = replace(narrow, cluster=replace(narrow.cluster, links=links))
    found = refused(narrow, application(rate=8.0))
    remedy = found.suggestions[0]
    assert (remedy.kind, remedy.element, remedy.before) == (SuggestionKind.BANDWIDTH, "a--b", 2.0)
    assert "a--b would need" in found.reason
    assert lets_in(with_increase(narrow, remedy), application(rate=8.0))
    assert not lets_in(with_increase(narrow, remedy, 0.97), application(rate=8.0))


def test_names_one_slow_machine_and_its_increase() -> None:
    slow = book()
    machines = tuple(replace(m, speed=0.05) if m.name == "a" else m for m in slow.cluster.machines)
    slow = replace(slow, cluster=replace(slow.cluster, machines=machines))
    remedy = refused(slow, application(rate=8.0)).suggestions[0]
    assert (remedy.kind, remedy.element) == (SuggestionKind.CPU, "a")
    assert 0.08 <= remedy.after <= 0.082
    assert lets_in(with_increase(slow, remedy), application(rate=8.0))


@pytest.mark.slow
def test_where_more_of_one_element_does_not_help_several_are_named() -> None:
    found = refused(book(), application(rate=20.0))
    remedy = found.suggestions[0]
    assert remedy.also
    assert lets_in(with_increase(book(), remedy), application(rate=20.0))
    for alone in (remedy._replace(also=()), *(part._replace(also=()) for part in remedy.also)):
        assert not lets_in(with_increase(book(), alone), application(rate=20.0))


def test_suggests_the_achievable_availability_to_best_effort() -> None:
    found = refused(book(fails=0.1), application(availability=0.995))
    assert [remedy.kind for remedy in found.suggestions] == [SuggestionKind.AVAILABILITY]
    assert found.suggestions[0].after == pytest.approx(0.99)
    assert found.binding in ("b", "c")
    assert lets_in(book(fails=0.1), application(availability=0.99))


@pytest.mark.slow
def test_a_refusal_is_one_line() -> None:
    for wanted in (application(rate=20.0), application(rate=300.0, availability=0.9), application(availability=0.999)):
        assert "\n" not in refused(book(fails=0.1), wanted).reason


def test_without_advice_there_are_no_remedies() -> None:
    found = admit(book(), application(rate=20.0), advise=False)
    assert isinstance(found, Refused)
    assert found.suggestions == ()
    assert "limited by" in found.reason


def booked(*rates: float) -> Book:
    """Return a book with guarantees that use up both routes: 10/s of one, 4/s of the other."""
    found = book()
    for number, rate in enumerate(rates):
        result = admit(found, application(f"gr{number}", rate=rate))
        assert isinstance(result, Admitted)
        found = result.book
    return found


def test_a_refusal_on_full_links_names_them_and_who_has_them_and_what_would_help() -> None:
    full, wanted = booked(8.0, 6.0), application("late", rate=1.0)
    found = refused(full, wanted)
    assert (
        "stream source->work has no route from 'a' to 'b': "
        "link a--b is fully booked (gr0 has 8, gr1 has 2 of 10 Mbit/s)" in found.reason
    )
    assert found.binding == "a--b"
    more = of_kind(found, SuggestionKind.BANDWIDTH)
    assert {one.element for one in (more, *more.also)} == {"a--b", "b--d", "a"}
    assert lets_in(with_increase(full, more), wanted)
    assert not lets_in(with_increase(full, more, 0.9), wanted)
    less = of_kind(found, SuggestionKind.RELEASE)
    assert (less.element, less.before) == ("gr1", 6.0)
    assert lets_in(release(full, less.element), wanted)


def test_all_who_have_a_link_are_named_or_counted() -> None:
    one_way = book()
    links = tuple(k for k in one_way.cluster.links if "c" not in (k.source, k.target))
    one_way = replace(one_way, cluster=replace(one_way.cluster, links=links))
    for number, rate in enumerate((1.0, 4.0, 2.0, 1.0, 2.0)):
        result = admit(one_way, application(f"gr{number}", rate=rate))
        assert isinstance(result, Admitted)
        one_way = result.book
    found = refused(one_way, application("late", rate=1.0))
    assert "gr1 has 4, gr2 has 2, gr4 has 2, 2 more have 2 of 10 Mbit/s" in found.reason


def test_suggests_any_increase_or_a_release_to_best_effort_on_full_links() -> None:
    full, wanted = booked(8.0, 6.0), application("late")
    found = refused(full, wanted)
    assert "link a--b is fully booked (gr0 has 8, gr1 has 2 of 10 Mbit/s)" in found.reason
    assert "any more of link a--b and of link b--d would admit it" in found.reason
    assert lets_in(with_increase(full, found.suggestions[0], 1e-3), wanted)
    assert lets_in(release(full, of_kind(found, SuggestionKind.RELEASE).element), wanted)


@pytest.mark.slow
def test_names_the_links_also_for_a_policy_that_only_proves_infeasibility() -> None:
    found = admit(booked(8.0, 6.0), application("late", rate=1.0), policy="optimal")
    assert isinstance(found, Refused)
    assert "link a--b is fully booked" in found.reason


def test_a_failed_link_off_the_route_is_not_binding() -> None:
    far = Machine(name="far")
    off = Link(source="far", target="a", bandwidth_mbps=1.0)
    full = booked(8.0, 6.0)
    cluster = replace(full.cluster, machines=(*full.cluster.machines, far), links=(off, *full.cluster.links))
    found = refused(fail(replace(full, cluster=cluster), "far").book, application("late", rate=1.0))
    assert found.binding == "a--b"
    assert not [remedy for remedy in found.suggestions if remedy.kind is SuggestionKind.RESTORE]


def test_suggests_to_restore_failed_elements_if_that_suffices() -> None:
    dark = fail(fail(book(), "b").book, "c").book
    little, much = refused(dark, application(rate=1.0)), refused(dark, application(rate=12.0))
    assert little.reason.endswith("machine b has failed; restoring b would admit it")
    both = of_kind(much, SuggestionKind.RESTORE)
    assert {one.element for one in (both, *both.also)} == {"b", "c"}
    assert "restoring b and c would admit it" in much.reason


def test_suggests_more_paths_if_the_maximum_is_too_low() -> None:
    found = admit(book(), application(rate=12.0), paths=1)
    assert isinstance(found, Refused)
    assert "1 path, the maximum allowed, carries 10/s of 12/s" in found.reason
    remedy = of_kind(found, SuggestionKind.PATHS)
    assert (remedy.before, remedy.after) == (1, 2)
    assert isinstance(admit(book(), application(rate=12.0), paths=2), Admitted)


def test_suggests_the_number_of_paths_to_search_even_if_fewer_are_booked() -> None:
    """The wide route is found first and often fails; finally only the narrow one is booked."""
    start = book()
    links = tuple(
        replace(link, failure_probability=0.05 if link.bandwidth_mbps == 10 else 0.0) for link in start.cluster.links
    )
    often, wanted = (
        replace(start, cluster=replace(start.cluster, links=links)),
        application(rate=1.0, availability=0.99),
    )
    found = admit(often, wanted, paths=1)
    assert isinstance(found, Refused)
    remedy = of_kind(found, SuggestionKind.PATHS)
    assert (remedy.before, remedy.after) == (1, 2)
    enough = admit(often, wanted, paths=2)
    assert isinstance(enough, Admitted)
    assert len(enough.booking.paths) == 1


def test_suggests_more_paths_to_best_effort_if_they_suffice() -> None:
    often, wanted = book(fails=0.1), application(availability=0.95)
    found = admit(often, wanted, paths=1)
    assert isinstance(found, Refused)
    assert "0.9 with 1 path, the maximum allowed, required 0.95" in found.reason
    assert found.reason.endswith("2 paths instead of 1 would suffice")
    assert isinstance(admit(often, wanted, paths=2), Admitted)
