"""A small network with two routes between its ends, and an application to admit.

    a --(10 Mbit/s)-- b --(10)-- d
    a --( 4 Mbit/s)-- c --( 4)-- d

A source tuple of the application takes 1 Mbit over every link of its route, 1 core-second of the machine that works on
it and 0.01 core-seconds at either end.
"""

from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.topology import Application, Component, Kind, Stream

MEGABIT = 1e6
POLICY = "sparcle"


def diamond(fails: float = 0.0, link_fails: float = 0.0) -> Cluster:
    """Return the network; its middle machines fail with one probability, its links with another."""
    links = (("a", "b", 10.0), ("b", "d", 10.0), ("a", "c", 4.0), ("c", "d", 4.0))
    return Cluster(
        name="diamond",
        machines=(
            Machine(name="a", speed=1.0),
            Machine(name="b", speed=10.0, failure_probability=fails),
            Machine(name="c", speed=4.0, failure_probability=fails),
            Machine(name="d", speed=1.0),
        ),
        links=tuple(
            Link(source=u, target=v, bandwidth_mbps=width, failure_probability=link_fails) for u, v, width in links
        ),
    )


def application(
    name: str = "flow",
    rate: float | None = None,
    availability: float | None = None,
    priority: float = 1.0,
    work: float = 1.0,
    source: str = "a",
) -> Application:
    """Return a chain of a source, a worker and a sink; the ends are pinned, by default to `a` and `d`."""
    return Application(
        name=name,
        components=(
            Component(name="source", kind=Kind.SOURCE, cpu=0.01, pinned=source),
            Component(name="work", cpu=work),
            Component(name="sink", kind=Kind.SINK, cpu=0.01, pinned="d"),
        ),
        streams=(
            Stream(source="source", target="work", tuple_bytes=MEGABIT / 8),
            Stream(source="work", target="sink", tuple_bytes=MEGABIT / 8),
        ),
        guaranteed_tps=rate,
        availability=availability,
        priority=priority,
    )


def book(fails: float = 0.0, link_fails: float = 0.0) -> Book:
    """Return an empty book of the network."""
    return Book(cluster=diamond(fails, link_fails))


def fan(ways: int, fails: float) -> Book:
    """Return an empty book of two ends and many routes between them, each over an unreliable machine."""
    middle = [f"m{number}" for number in range(ways)]
    links = [Link(source=u, target=v, bandwidth_mbps=10.0) for name in middle for u, v in (("a", name), (name, "d"))]
    machines = [Machine(name=name, speed=10.0, failure_probability=fails) for name in middle]
    ends = [Machine(name=name, speed=10.0) for name in ("a", "d")]
    return Book(cluster=Cluster(name="fan", machines=(*ends, *machines), links=tuple(links)))


def switched() -> Book:
    """Return an empty book of the same network with a switch between `a` and either machine in the middle.

    a --(10 Mbit/s)-- east --(10)-- b --(10)-- d
    a --( 4 Mbit/s)-- west --( 4)-- c --( 4)-- d
    """
    ends = (("a", "east", 10.0), ("east", "b", 10.0), ("b", "d", 10.0), ("a", "west", 4.0), ("west", "c", 4.0))
    links = tuple(Link(source=u, target=v, bandwidth_mbps=width) for u, v, width in (*ends, ("c", "d", 4.0)))
    return Book(cluster=Cluster(name="switched", machines=diamond().machines, switches=("east", "west"), links=links))
