"""What refusals say would help does help, and little less would not."""

import pytest
from msgspec.structs import replace

from penstock.control.book import Admitted, Refused, Remedy, RemedyKind, admit
from penstock.model.book import Book
from penstock.model.topology import Application
from tests.control.book.cases import application, book


def refused(book: Book, wanted: Application) -> Refused:
    found = admit(book, wanted)
    assert isinstance(found, Refused), found
    return found


def of_kind(found: Refused, kind: RemedyKind) -> Remedy:
    return next(remedy for remedy in found.remedies if remedy.kind is kind)


def with_increase(book: Book, remedy: Remedy, share: float = 1.0) -> Book:
    """Raise an element's capacity by a share of what the remedy says."""
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


def test_the_best_rate_can_be_had_and_no_more() -> None:
    found = refused(book(), application(rate=20.0))
    best = of_kind(found, RemedyKind.RATE).after
    assert best == pytest.approx(14.0, rel=1e-3)
    assert lets_in(book(), application(rate=best))
    assert not lets_in(book(), application(rate=best * 1.01))


def test_the_best_rate_keeps_the_availability() -> None:
    found = refused(book(fails=0.1), application(rate=12.0, availability=0.95))
    assert of_kind(found, RemedyKind.RATE).after == pytest.approx(4.0, rel=1e-3)
    assert of_kind(found, RemedyKind.AVAILABILITY).after == pytest.approx(0.81, rel=1e-3)
    assert lets_in(book(fails=0.1), application(rate=4.0, availability=0.95))
    assert lets_in(book(fails=0.1), application(rate=12.0, availability=0.81))


def test_one_link_that_is_too_narrow_is_named_with_what_it_would_need() -> None:
    narrow = book()
    links = tuple(replace(k, bandwidth_mbps=2.0) if k.label == "a--b" else k for k in narrow.cluster.links)
    narrow = replace(narrow, cluster=replace(narrow.cluster, links=links))
    found = refused(narrow, application(rate=8.0))
    remedy = found.remedies[0]
    assert (remedy.kind, remedy.element, remedy.before) == (RemedyKind.BANDWIDTH, "a--b", 2.0)
    assert "a--b would need" in found.reason
    assert lets_in(with_increase(narrow, remedy), application(rate=8.0))
    assert not lets_in(with_increase(narrow, remedy, 0.97), application(rate=8.0))


def test_one_machine_that_is_too_slow_is_named_with_what_it_would_need() -> None:
    slow = book()
    machines = tuple(replace(m, speed=0.05) if m.name == "a" else m for m in slow.cluster.machines)
    slow = replace(slow, cluster=replace(slow.cluster, machines=machines))
    remedy = refused(slow, application(rate=8.0)).remedies[0]
    assert (remedy.kind, remedy.element) == (RemedyKind.CPU, "a")
    assert 0.08 <= remedy.after <= 0.082
    assert lets_in(with_increase(slow, remedy), application(rate=8.0))


def test_where_more_of_one_element_does_not_help_several_are_named() -> None:
    found = refused(book(), application(rate=20.0))
    remedy = found.remedies[0]
    assert remedy.also
    assert lets_in(with_increase(book(), remedy), application(rate=20.0))
    for alone in (remedy._replace(also=()), *(part._replace(also=()) for part in remedy.also)):
        assert not lets_in(with_increase(book(), alone), application(rate=20.0))


def test_best_effort_is_told_the_availability_that_can_be_had() -> None:
    found = refused(book(fails=0.1), application(availability=0.995))
    assert [remedy.kind for remedy in found.remedies] == [RemedyKind.AVAILABILITY]
    assert found.remedies[0].after == pytest.approx(0.99)
    assert found.binding in ("b", "c")
    assert lets_in(book(fails=0.1), application(availability=0.99))


def test_a_refusal_is_one_line() -> None:
    for wanted in (application(rate=20.0), application(rate=300.0, availability=0.9), application(availability=0.999)):
        assert "\n" not in refused(book(fails=0.1), wanted).reason


def test_without_advice_there_are_no_remedies() -> None:
    found = admit(book(), application(rate=20.0), advise=False)
    assert isinstance(found, Refused)
    assert found.remedies == ()
    assert "limited by" in found.reason
