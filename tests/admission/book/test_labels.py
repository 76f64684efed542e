"""Applications that may run only on machines with a label, in a book."""

from msgspec.structs import replace

from penstock.admission import Admitted, Refused, admit, fail
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.topology import Application, Component, Kind, Stream

NAMES = ("a", "b", "c")


def labelled(*names: str) -> Book:
    """Return an empty book of three machines in a triangle, some of them with the label `gpu`."""
    machines = tuple(Machine(name=name, labels=("gpu",) if name in names else ()) for name in NAMES)
    pairs = (("a", "b"), ("b", "c"), ("a", "c"))
    links = tuple(Link(source=one, target=other, bandwidth_mbps=10.0) for one, other in pairs)
    return Book(cluster=Cluster(name="three", machines=machines, links=links))


def detection(rate: float) -> Application:
    return Application(
        name="faces",
        components=(
            Component(name="s", kind=Kind.SOURCE, pinned="a"),
            Component(name="w", cpu=0.01, on="gpu"),
            Component(name="t", kind=Kind.SINK, pinned="a"),
        ),
        streams=(Stream(source="s", target="w"), Stream(source="w", target="t")),
        guaranteed_tps=rate,
    )


def test_every_path_keeps_to_machines_with_the_label() -> None:
    found = admit(labelled("b", "c"), detection(150.0))  # more than one machine can do
    assert isinstance(found, Admitted), found
    paths = found.book.bookings[0].paths
    assert sorted(slot for path in paths for slot in path.plan.tasks["w"]) == ["b/0", "c/0"]


def test_a_path_is_not_looked_for_without_the_only_machine_with_the_label() -> None:
    found = admit(labelled("b"), replace(detection(50.0), availability=0.9))
    assert isinstance(found, Admitted), found


def test_a_failed_machine_with_the_label_is_to_be_restored() -> None:
    found = admit(fail(labelled("b"), "b").book, detection(50.0))
    assert isinstance(found, Refused)
    assert "needs a machine with the label 'gpu', and all have failed; restore one" in found.reason
    assert found.binding == "b"


def test_too_high_a_rate_is_refused_for_the_machines_with_the_label() -> None:
    found = admit(labelled("b", "c"), detection(250.0))
    assert isinstance(found, Refused)
    assert "machine b" in found.reason or "machine c" in found.reason
