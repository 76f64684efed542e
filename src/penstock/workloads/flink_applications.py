"""Applications of the TATA paper, which ran on Flink (§V-C, Fig. 5): three that are not in Li's dissertation.

The text describes the structure and the maximum throughput that TATA's placement reached on three task managers, but no
costs; it has lost the figure with the numbers of tasks. So tasks are an assumption (slightly more than the cluster's
six slots), and the cost of a source tuple is the one that keeps that cluster (5.85 cores of 2.0 GHz, speed 1) fully
busy at the reported throughput, divided among the components by assumption. A task holds 256 MB (assumption).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from msgspec import Meta

from penstock.model.entity import Count, Positive
from penstock.model.topology import Application, Component, Grouping, Kind, Stream

Doublings = Annotated[int, Meta(ge=1, le=32)]

TASK_MEMORY_MB = 256.0
CLUSTER_CPU = 5.85  # 1 × 1.25 + 2 × 1.0 + 2 × 1.3: the third machine has four cores and two slots
EVENTS_A_RESULT = 50  # of a car, for one top speed: an assumption


def _components(names: Sequence[str], tasks: Sequence[int], shares: Sequence[float], cpu: float) -> list[Component]:
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (len(names) - 2), Kind.SINK]
    return [
        Component(name=name, kind=kind, parallelism=count, cpu=share * cpu, memory_mb=TASK_MEMORY_MB)
        for name, kind, count, share in zip(names, kinds, tasks, shares, strict=True)
    ]


def throughput_test(sources: Count = 2, identities: Count = 4, sinks: Count = 2) -> Application:
    """Send tuples of 10 kB through an operator that does nothing, to a sink that counts them.

    9,000 tuples/s were reached. The source causes half of the cost (it generates random text), identity 0.3, sink 0.2.
    """
    names = ("source", "identity", "sink")
    components = _components(names, (sources, identities, sinks), (0.5, 0.3, 0.2), CLUSTER_CPU / 9000.0)
    return Application(
        name="throughput-test",
        components=tuple(components),
        streams=tuple(Stream(source=a, target=b, tuple_bytes=10_000.0) for a, b in pairwise(names)),
    )


def top_speed_windowing(sources: Count = 2, windows: Count = 4, sinks: Count = 1) -> Application:
    """Report each car's top speed every x metres: source, time (takes the timestamp), window by car, sink.

    217,000 tuples/s were reached. `time` has the source's parallelism and is chained to it (forward); a window emits
    one result per 50 events (assumption); events are four numbers, 40 bytes. The source causes 0.2 of the cost of an
    event, time 0.2, window 0.5 and the sink 0.1, so a result costs the sink five times the total cost of an event.
    """
    a_tuple = CLUSTER_CPU / 217_000.0
    results = 1 / EVENTS_A_RESULT
    names = ("source", "time", "window", "sink")
    shares = (0.2, 0.2, 0.5, 0.1 / results)
    return Application(
        name="top-speed-windowing",
        components=tuple(_components(names, (sources, sources, windows, sinks), shares, a_tuple)),
        streams=(
            Stream(source="source", target="time", grouping=Grouping.FORWARD, tuple_bytes=40.0),
            Stream(source="time", target="window", grouping=Grouping.FIELDS, keys=("car",), tuple_bytes=40.0),
            Stream(source="window", target="sink", selectivity=results, tuple_bytes=40.0),
        ),
    )


def synthetic_communication(tasks: Count = 2, operators: Doublings = 3, first_bytes: Positive = 100.0) -> Application:
    """Pass random text along a chain of operators that each double it.

    33,000 tuples/s were reached. The cost is divided in proportion to the bytes that a component sends (the sink:
    receives). The number of operators and the length of the first text are assumptions.
    """
    names = ("source", *(f"double-{number}" for number in range(1, operators + 1)), "sink")
    sent = [first_bytes * 2**number for number in range(operators + 1)]
    handled = [*sent, sent[-1]]
    shares = [size / sum(handled) for size in handled]
    return Application(
        name="synthetic-communication",
        components=tuple(_components(names, [tasks] * len(names), shares, CLUSTER_CPU / 33_000.0)),
        streams=tuple(
            Stream(source=a, target=b, tuple_bytes=size) for a, b, size in zip(names[:-1], names[1:], sent, strict=True)
        ),
    )
