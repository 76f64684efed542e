"""A dataflow for any topology: it computes nothing, but sends tuples of the declared sizes at the declared rates.

On emulated machines, which charge the declared costs of components, every application that can be planned can be run
with it: those of the papers without code, generated ones, those in files.
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
from penstock.workloads.running.blueprint import Blueprint, Feed

KEYS = 9973  # number of different keys; a prime, so that all of them occur
ENVELOPE = 6  # bytes of a sample in addition to its payload


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """A tuple that stands for one of a given size."""

    key: int
    payload: bytes = b""


def make_sample(number: int) -> Sample:
    """Return the tuple that a source generates from a number."""
    return Sample(number % KEYS)


class OutputSpec(msgspec.Struct, frozen=True):
    """The number and form of the tuples sent through an output per processed tuple."""

    output: str | None  # None: the only one
    gain: int  # the selectivity is gain / unit
    unit: int
    ahead: int  # fraction of a unit sent in advance, so that several outputs take turns
    payload: bytes
    tasks: int = 0  # of a direct stream: sends to each in turn

    def sent(self, processed: int) -> int:
        """Return the number of tuples sent through it after a number of processed tuples."""
        return (self.gain * processed + self.ahead) // self.unit


class Emission:
    """The output of a component: through each output, its selectivity times the processed tuples, rounded down."""

    def __init__(self, specs: Sequence[OutputSpec]) -> None:
        self.specs = tuple(specs)
        self.processed = 0

    def follow(self, value: Sample) -> Iterator[Any]:
        """Yield the tuples derived from one tuple."""
        before, self.processed = self.processed, self.processed + 1
        for spec in self.specs:
            first = spec.sent(before)
            for number in range(first, spec.sent(self.processed)):
                sample = Sample((value.key * 31 + number - first) % KEYS, spec.payload)
                sent = (number % spec.tasks, sample) if spec.tasks else sample
                yield sent if spec.output is None else (spec.output, sent)


class PassThrough(Operator[Sample, Any]):
    """An operator that only forwards tuples."""

    def __init__(self, specs: Sequence[OutputSpec]) -> None:
        self.emission = Emission(specs)

    def process(self, value: Sample) -> Iterator[Any]:
        """Return the tuples derived from one tuple."""
        return self.emission.follow(value)

    def snapshot(self) -> int:
        """Return the number of processed tuples."""
        return self.emission.processed

    def restore(self, state: int) -> None:
        """Continue after a number of tuples."""
        self.emission.processed = state


class SelectiveSource(Source[Any]):
    """A source that multiplies the tuples of another by a selectivity."""

    rewinds = True

    def __init__(self, inner: Source[Sample], specs: Sequence[OutputSpec]) -> None:
        self.inner = inner
        self.emission = Emission(specs)
        self.most = sum(spec.gain // spec.unit + 1 for spec in specs)  # derived from one tuple

    def open(self, context: TaskContext) -> None:
        """Open the inner source."""
        self.inner.open(context)

    def poll(self, now: float, limit: int) -> Sequence[Any] | Timed[Any] | None:
        """Return the tuples derived from the due ones; at least those of one tuple, which may exceed `limit`."""
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
        """Return when the inner source's next tuple is due."""
        return self.inner.next_due(now)

    def position(self) -> dict[str, Any]:
        """Return how far it has advanced."""
        return {"inner": self.inner.position(), "processed": self.emission.processed}

    def seek(self, position: dict[str, Any]) -> None:
        """Continue after a position."""
        self.inner.seek(position["inner"])
        self.emission.processed = position["processed"]

    def close(self) -> None:
        """Close the inner source."""
        self.inner.close()

    @property
    def rate_tps(self) -> float | None:
        """The inner source's rate, which the topology declares; the output is multiplied by the selectivity."""
        return self.inner.rate_tps


def any_dataflow(application: Application, rate: float | None = None, *, count: int | None = None) -> Dataflow:
    """Return a dataflow with a topology's shape, sizes and costs that does no work.

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
        specs = _output_specs(application, component.name)
        outputs, costs = [spec.output for spec in specs if spec.output is not None], model.costs(component.name)
        if component.kind is Kind.SOURCE:
            source = SelectiveSource(feeds[component.name].source(make_sample), specs)
            outlet = flow.source(component.name, source, emits=Sample, outputs=outputs, **costs)
        else:
            outlet = flow.operator(component.name, PassThrough(specs), *inputs, emits=Sample, outputs=outputs, **costs)
        outlets[component.name] = outlet
    flow.parts = {component.name: flow.parts[component.name] for component in application.components}
    return flow


def _taken(model: Blueprint, outlets: dict[str, Outlet], stream: Stream) -> Outlet:
    outlet = outlets[stream.source]
    chosen = outlet[stream.target] if outlet.outputs else outlet
    return model.outlet(chosen, stream.target, *(Named(name, "key") for name in stream.keys))


def _output_specs(application: Application, name: str) -> list[OutputSpec]:
    """Return the outputs of a component: one if all its streams carry the same tuples, else one per stream."""
    streams = [stream for stream in application.streams if stream.source == name]
    carried = {(s.selectivity, _payload_size(s), _named_tasks(application, s)) for s in streams}
    specs: list[OutputSpec] = []
    ahead = Fraction(0)
    for stream in streams if len(carried) > 1 else streams[:1]:
        selectivity = Fraction(str(stream.selectivity))
        unit = math.lcm(selectivity.denominator, ahead.denominator)
        specs.append(
            OutputSpec(
                output=stream.target if len(carried) > 1 else None,
                gain=int(selectivity * unit),
                unit=unit,
                ahead=int(ahead % 1 * unit),
                payload=bytes(_payload_size(stream)),
                tasks=_named_tasks(application, stream),
            )
        )
        ahead += selectivity
    return specs


def _payload_size(stream: Stream) -> int:
    return max(0, round(stream.tuple_bytes) - ENVELOPE)


def _named_tasks(application: Application, stream: Stream) -> int:
    return application[stream.target].parallelism if stream.grouping is Grouping.DIRECT else 0
