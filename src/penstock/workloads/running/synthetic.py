"""A dataflow for any topology: nothing is computed, but tuples of the stated sizes go the stated ways, as many as due.

On emulated machines, which charge what a topology says that its components cost, every application that can be planned
can so be run: the papers' without code of their own, generated ones, those of files.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from penstock.api.contracts import Operator, Source, TaskContext, Timed
from penstock.api.dataflow import Dataflow, Outlet
from penstock.api.keys import Named
from penstock.api.sinks.discard import Discard
from penstock.model.topology import Application, Grouping, Kind, Stream
from penstock.workloads.running.blueprint import Blueprint
from penstock.workloads.running.feed import Feed

KEYS = 9973  # different keys; a prime, so that every one of them comes up
ENVELOPE = 6  # bytes that a sample takes beyond its payload


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """A tuple that stands for one of some size."""

    key: int
    payload: bytes = b""


def first_sample(number: int) -> Sample:
    """Return what a source makes of a number."""
    return Sample(number % KEYS)


class Way(msgspec.Struct, frozen=True):
    """How many tuples leave by an output for each tuple processed, and what they look like."""

    output: str | None  # None: the only one
    gain: int  # the selectivity is gain / unit
    unit: int
    ahead: int  # of a unit, what is taken as sent before the first, so that several outputs take turns
    payload: bytes
    tasks: int = 0  # of a direct stream: sends to each in turn

    def sent(self, processed: int) -> int:
        """Return how many tuples have left by it after a number of tuples."""
        return (self.gain * processed + self.ahead) // self.unit


class Emission:
    """What a component sends: by each way exactly the whole tuples that its selectivity amounts to so far."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self.ways = tuple(ways)
        self.processed = 0

    def follow(self, value: Sample) -> Iterator[Any]:
        """Yield what follows from one tuple."""
        before, self.processed = self.processed, self.processed + 1
        for way in self.ways:
            first = way.sent(before)
            for number in range(first, way.sent(self.processed)):
                sample = Sample((value.key * 31 + number - first) % KEYS, way.payload)
                sent = (number % way.tasks, sample) if way.tasks else sample
                yield sent if way.output is None else (way.output, sent)


class Passing(Operator[Sample, Any]):
    """An operator that does nothing but send on."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self.emission = Emission(ways)

    def process(self, value: Sample) -> Iterator[Any]:
        """Return what follows from one tuple."""
        return self.emission.follow(value)

    def snapshot(self) -> int:
        """Return how many tuples were processed."""
        return self.emission.processed

    def restore(self, state: int) -> None:
        """Go on after a number of tuples."""
        self.emission.processed = state


class Emitting(Source[Any]):
    """A source that sends, for each tuple of another, what a selectivity makes of it."""

    rewinds = True

    def __init__(self, inner: Source[Sample], ways: Sequence[Way]) -> None:
        self.inner = inner
        self.emission = Emission(ways)
        self.most = sum(way.gain // way.unit + 1 for way in ways)  # that follow from one tuple

    def open(self, context: TaskContext) -> None:
        """Open the other."""
        self.inner.open(context)

    def poll(self, now: float, limit: int) -> Sequence[Any] | Timed[Any] | None:
        """Return what follows from the tuples that are due; where one stands for many, at least its own."""
        polled = self.inner.poll(now, max(1, limit // self.most))
        if polled is None:
            return None
        values, dues = (polled.values, polled.dues) if isinstance(polled, Timed) else (polled, [now] * len(polled))
        sent: list[Any] = []
        times: list[float] = []
        for value, due in zip(values, dues, strict=True):
            following = list(self.emission.follow(value))
            sent += following
            times += [due] * len(following)
        return Timed(sent, times)

    def next_due(self, now: float) -> float:
        """Say when the other's next tuple is due."""
        return self.inner.next_due(now)

    def position(self) -> dict[str, Any]:
        """Return how far it has come."""
        return {"inner": self.inner.position(), "processed": self.emission.processed}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on after a position."""
        self.inner.seek(position["inner"])
        self.emission.processed = position["processed"]

    def close(self) -> None:
        """Close the other."""
        self.inner.close()

    @property
    def rate_tps(self) -> float | None:
        """The other's rate, by which the topology counts; what is sent is more or less by the selectivity."""
        return self.inner.rate_tps


def any_dataflow(application: Application, rate: float | None = None, *, count: int | None = None) -> Dataflow:
    """Return a dataflow that has a topology's shape, sizes and costs, and does no work.

    rate: total tuples per second of all sources; default: the application's own, or else 100. count: the number of
    tuples that the sources emit before they end. Every task sends to each stream its selectivity times the number of
    processed tuples, rounded down; payloads have about `tuple_bytes` bytes. Keys are uniformly distributed. On emulated
    machines, a source whose selectivity is not 1 is charged for each tuple sent.
    """
    flow, model = Dataflow(application.name), Blueprint(application)
    feeds = Feed(rate=rate if rate is not None else application.offered_tps, count=count).split(model.shares())
    outlets: dict[str, Outlet] = {}
    for position in application.order:
        component = application.components[position]
        inputs = [_taken(model, outlets, s) for s in application.streams if s.target == component.name]
        if component.kind is Kind.SINK:
            flow.sink(component.name, Discard(), *inputs, **model.costs(component.name))
            continue
        ways = _ways(application, component.name)
        outputs, costs = [way.output for way in ways if way.output is not None], model.costs(component.name)
        if component.kind is Kind.SOURCE:
            source = Emitting(feeds[component.name].source(first_sample), ways)
            outlet = flow.source(component.name, source, gives=Sample, outputs=outputs, **costs)
        else:
            outlet = flow.operator(component.name, Passing(ways), *inputs, gives=Sample, outputs=outputs, **costs)
        outlets[component.name] = outlet
    flow.parts = {component.name: flow.parts[component.name] for component in application.components}
    return flow


def _taken(model: Blueprint, outlets: dict[str, Outlet], stream: Stream) -> Outlet:
    outlet = outlets[stream.source]
    chosen = outlet[stream.target] if outlet.outputs else outlet
    return model.way(chosen, stream.target, *(Named(name, "key") for name in stream.keys))


def _ways(application: Application, name: str) -> list[Way]:
    """Return the outputs of a component: one where all its streams carry the same, else one a stream."""
    streams = [stream for stream in application.streams if stream.source == name]
    carried = {(s.selectivity, _payload_size(s), _named_tasks(application, s)) for s in streams}
    ways: list[Way] = []
    ahead = Fraction(0)
    for stream in streams if len(carried) > 1 else streams[:1]:
        selectivity = Fraction(str(stream.selectivity))
        unit = math.lcm(selectivity.denominator, ahead.denominator)
        ways.append(
            Way(
                output=stream.target if len(carried) > 1 else None,
                gain=int(selectivity * unit),
                unit=unit,
                ahead=int(ahead % 1 * unit),
                payload=bytes(_payload_size(stream)),
                tasks=_named_tasks(application, stream),
            )
        )
        ahead += selectivity
    return ways


def _payload_size(stream: Stream) -> int:
    return max(0, round(stream.tuple_bytes) - ENVELOPE)


def _named_tasks(application: Application, stream: Stream) -> int:
    return application[stream.target].parallelism if stream.grouping is Grouping.DIRECT else 0
