"""What a built-in application takes from its topology (sizes, costs) and from its run (sources, rates)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.api.contracts import Source
from penstock.api.dataflow import Outlet
from penstock.api.keys import Key
from penstock.api.sources.generated import Generated
from penstock.api.sources.lines import Lines
from penstock.api.sources.pace import ArrivalProcess
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application, Component, Stream

DEFAULT_TPS = 100.0


@dataclass(frozen=True)
class Feed:
    """Generated tuples, or the lines of files, at a pace.

    rate: total tuples per second of all sources; default without `arrivals`: 100.
    arrivals: an arrival process or its specification (`poisson:rate=500`); each of two sources follows it.
    input: a file or folder to read instead of generating tuples; with `repeat`, again and again.
    count: the number of generated tuples before the sources end; default: unlimited.
    """

    rate: float | None = None
    arrivals: ArrivalProcess | str | None = None
    input: str | Path | None = None
    repeat: bool = False
    count: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repeat and self.input is None:
            raise InvalidInput("repeat", "expected an input as well, got none; generated tuples do not end")
        if self.count is not None and self.input is not None:
            raise InvalidInput("count", f"expected no count with the input {str(self.input)!r}, which is finite")

    def split(self, shares: dict[str, float]) -> dict[str, "Feed"]:
        """Return the feed of each of several sources, with its share of the rate and of the count, and its own seed."""
        rate = DEFAULT_TPS if self.rate is None and self.arrivals is None else self.rate
        feeds: dict[str, Feed] = {}
        before = 0.0
        for position, (name, share) in enumerate(shares.items()):
            feeds[name] = replace(
                self,
                rate=None if rate is None else rate * share,
                count=_between(self.count, before, before + share),
                seed=self.seed * len(shares) + position,
            )
            before += share
        return feeds

    def source(self, make: Callable[[int], Any], *, generated: bool = False) -> Source[Any]:
        """Return the source: of the results of `make` for numbers, or of lines if there is an input."""
        process = _process(self.arrivals) if isinstance(self.arrivals, str) else self.arrivals
        if self.input is None or generated:
            return Generated(make, rate=self.rate, arrivals=process, count=self.count)
        return Lines(self.input, rate=self.rate, arrivals=process, repeat=self.repeat)


def _process(spec: str) -> ArrivalProcess:
    from penstock.workloads.arrivals import arrivals  # imports numba

    return arrivals(spec)


def _between(count: int | None, first: float, last: float) -> int | None:
    return None if count is None else round(count * last) - round(count * first)


class Blueprint:
    """What the components and streams of a dataflow take from an application's topology."""

    def __init__(self, application: Application) -> None:
        self.application = application

    def costs(self, name: str) -> dict[str, Any]:
        """Return the parallelism, costs and pins of a component, as keywords of `Dataflow`'s methods."""
        component = self.application[name]
        return {
            field: getattr(component, field) for field in Component.__struct_fields__ if field not in ("name", "kind")
        }

    def outlet(self, outlet: Outlet, target: str, *keys: Key) -> Outlet:
        """Return an outlet with the grouping and costs of the stream to a component."""
        stream = self.stream(outlet.component, target)
        return replace(
            outlet, grouping=stream.grouping, keys=keys, selectivity=stream.selectivity, tuple_bytes=stream.tuple_bytes
        )

    def stream(self, source: str, target: str) -> Stream:
        """Return the stream between two components."""
        return next(s for s in self.application.streams if (s.source, s.target) == (source, target))

    def shares(self) -> dict[str, float]:
        """Return each source's share of the load: by the declared rates, or else by the number of tasks."""
        application = self.application
        parts = application.rate_tps or {source.name: float(source.parallelism) for source in application.sources}
        return {name: part / sum(parts.values()) for name, part in parts.items()}
