"""Rejections because of resources other than cpu and bandwidth, memory, or network cards."""

import re

import pytest
from msgspec.structs import replace

from penstock.admission import Admitted, Refused, Suggestion, SuggestionKind, admit, fail
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application, Component, Kind, Stream
from tests.admission.book.applying import Asked


def wanting(
    name: str, rate: float | None = None, *, gpu: float = 0.0, memory_mb: float = 0.0, pinned: str | None = None
) -> Application:
    """Return an application from `a` to `b` whose worker needs a resource, or memory."""
    return Application(
        name=name,
        components=(
            Component(name="s", kind=Kind.SOURCE, pinned="a"),
            Component(name="w", cpu=0.01, resources={"gpu": gpu} if gpu else {}, memory_mb=memory_mb, pinned=pinned),
            Component(name="t", kind=Kind.SINK, cpu=0.01, pinned="b"),
        ),
        streams=(
            Stream(source="s", target="w", tuple_bytes=1000),
            Stream(source="w", target="t", tuple_bytes=1000),
        ),
        guaranteed_tps=rate,
    )


def two(**other: Machine) -> Book:
    """Return an empty book of two machines with 2 and 1 gpu, and of 1000 and 500 MB."""
    machines = {
        "a": Machine(name="a", resources={"gpu": 2.0}, memory_mb=1000.0),
        "b": Machine(name="b", resources={"gpu": 1.0}, memory_mb=500.0),
    }
    links = (Link(source="a", target="b", bandwidth_mbps=10.0),)
    return Book(cluster=Cluster(name="two", machines=tuple((machines | other).values()), links=links))


def with_booked(book: Book, *applications: Application) -> Book:
    for application in applications:
        found = admit(book, application)
        assert isinstance(found, Admitted), found
        book = found.book
    return book


def of_kind(found: Refused, kind: SuggestionKind) -> list[Suggestion]:
    return [remedy for remedy in found.suggestions if remedy.kind is kind]


def test_a_resource_that_others_have_is_named_with_who_has_it_and_how_much_more_would_do() -> None:
    asked = Asked(with_booked(two(), wanting("p", 3.0, gpu=1.0)), wanting("next", 1.0, gpu=1.0))
    found = asked.refusal()
    assert found.reason.startswith(
        "task w[0] needs gpu, but none is left: machine a is fully booked (p has 2 of 2 gpu), "
        "machine b is fully booked (p has 1 of 1 gpu); machine a would need 3 gpu instead of 2"
    )
    assert found.binding == "a"
    more = of_kind(found, SuggestionKind.RESOURCE)
    assert [(one.element, one.resource, one.before, one.after) for one in more] == [
        ("a", "gpu", 2.0, 3.0),
        ("b", "gpu", 1.0, 2.0),
    ]
    assert all(asked.lets_in(remedy) for remedy in found.suggestions)
    assert [one.element for one in of_kind(found, SuggestionKind.RELEASE)] == ["p"]


def test_names_the_limiting_resource_and_a_sufficient_increase() -> None:
    asked = Asked(two(), wanting("p", 5.0, gpu=1.0))
    found = asked.refusal()
    assert "2 paths carry 3/s of 5/s, limited by the gpu of a; machine a would need 4 gpu instead of 2" in found.reason
    assert all(asked.lets_in(remedy) for remedy in found.suggestions)
    assert of_kind(found, SuggestionKind.RATE)[0].after == 3.0


def test_suggests_any_increase_of_a_resource_to_best_effort() -> None:
    asked = Asked(with_booked(two(), wanting("p", 3.0, gpu=1.0)), wanting("next", gpu=1.0))
    found = asked.refusal()
    assert "any more gpu of machine a would admit it" in found.reason
    assert all(asked.lets_in(remedy) for remedy in found.suggestions)


def test_a_resource_that_no_machine_ever_had_is_to_be_added() -> None:
    found = admit(two(a=Machine(name="a"), b=Machine(name="b")), wanting("p", 1.0, gpu=1.0))
    assert isinstance(found, Refused)
    assert found.reason == "task w[0] needs gpu, which no machine has; add it to the resources of a machine"


def test_suggests_the_resource_that_a_pinned_machine_lacks() -> None:
    asked = Asked(two(b=Machine(name="b")), wanting("p", 1.0, gpu=1.5, pinned="b"))
    found = asked.refusal()
    assert found.reason.endswith("machine b would need 1.5 gpu instead of 0")
    assert found.binding == "b"
    assert all(asked.lets_in(remedy) for remedy in found.suggestions)


def test_a_machine_that_has_the_resource_and_has_failed_is_to_be_restored() -> None:
    book = fail(two(a=Machine(name="a"), c=Machine(name="c", resources={"gpu": 1.0})), "b").book
    linked = replace(book.cluster, links=(*book.cluster.links, Link(source="c", target="a", bandwidth_mbps=5.0)))
    asked = Asked(fail(replace(book, cluster=linked), "c").book, replace_sink(wanting("p", 0.5, gpu=1.0)))
    found = asked.refusal()
    assert "needs gpu, but none is left: machine b has failed, machine c has failed" in found.reason
    assert of_kind(found, SuggestionKind.RESTORE)
    assert all(asked.lets_in(remedy) for remedy in found.suggestions)


def replace_sink(application: Application) -> Application:
    """Return an application that ends where it begins."""
    parts = tuple(replace(one, pinned="a") if one.name == "t" else one for one in application.components)
    return replace(application, components=parts)


def test_of_many_machines_without_the_resource_a_few_are_named_and_all_are_counted() -> None:
    more = {f"m{number}": Machine(name=f"m{number}", resources={"gpu": 0.5}) for number in range(3)}
    book = two(**more)
    links = tuple(Link(source=name, target="a", bandwidth_mbps=10.0) for name in more)
    book = replace(book, cluster=replace(book.cluster, links=(*book.cluster.links, *links)))
    full = with_booked(book, wanting("p", 4.5, gpu=1.0))
    found = admit(full, wanting("next", 1.0, gpu=1.0), advise=False)
    assert isinstance(found, Refused)
    assert "but none is left on any of the 5 machines that have it: machine a is" in found.reason
    assert found.reason.count("is fully booked") == 3


@pytest.mark.parametrize("rate", [1.0, None])
def test_memory_that_others_hold_is_named_with_who_holds_it_and_how_much_more_would_do(rate: float | None) -> None:
    full = with_booked(two(), wanting("p", 1.0, memory_mb=800.0), wanting("q", memory_mb=400.0))
    asked = Asked(full, wanting("next", rate, memory_mb=300.0))
    found = asked.refusal()
    assert (
        "task w[0] needs 300 MB and the most left on any machine is 200 MB: "
        "machine a has 200 MB left (p has 800 of 1000 MB of memory), "
        "machine b has 100 MB left (q has 400 of 500 MB of memory); "
        "machine a would need 1100 MB of memory instead of 1000"
    ) in found.reason
    assert found.binding == "a"
    more = of_kind(found, SuggestionKind.MEMORY)
    assert [(one.element, one.before, one.after) for one in more] == [("a", 1000.0, 1100.0), ("b", 500.0, 700.0)]
    assert {one.element for one in of_kind(found, SuggestionKind.RELEASE)} <= {"p", "q"}
    assert of_kind(found, SuggestionKind.RELEASE)
    assert all(asked.lets_in(remedy) for remedy in found.suggestions)


def test_memory_of_a_pin_is_that_of_its_machine() -> None:
    asked = Asked(two(), wanting("p", 1.0, memory_mb=600.0, pinned="b"))
    found = asked.refusal()
    assert found.binding == "b"
    assert found.reason.endswith("machine b has 500 MB; machine b would need 600 MB of memory instead of 500")
    assert all(asked.lets_in(remedy) for remedy in found.suggestions)


def test_names_a_slow_network_card_with_its_direction_and_increase() -> None:
    machines = (Machine(name="a", network_mbps=0.8), Machine(name="b", network_mbps=10.0))
    pinned = replace_sink(wanting("p", 200.0, pinned="b"))
    away = replace(pinned, components=tuple(replace(one, cpu=0.0001) for one in pinned.components))
    asked = Asked(Book(cluster=Cluster(name="cards", machines=machines)), away)
    found = asked.refusal()
    assert re.search("limited by the (sending|receiving) bandwidth of a", found.reason)
    more = of_kind(found, SuggestionKind.BANDWIDTH)
    assert more
    assert {one.resource for one in (more[0], *more[0].also)} == {"network (out)", "network (in)"}
    assert all(asked.lets_in(remedy) for remedy in found.suggestions)


def test_a_resource_may_not_have_the_name_that_the_book_gives_to_memory() -> None:
    wanted = wanting("p", 1.0)
    named = replace(wanted.components[1], resources={"memory (MB)": 1.0})
    with pytest.raises(InvalidInput, match="this name is reserved by the book"):
        admit(two(), replace(wanted, components=(wanted.components[0], named, wanted.components[2])))
