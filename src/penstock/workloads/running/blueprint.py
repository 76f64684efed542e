"""A topology as the blueprint of a dataflow, which takes its sizes and costs from it."""

from dataclasses import replace
from typing import Any

from penstock.api.dataflow import Outlet
from penstock.api.keys import Key
from penstock.model.topology import Application, Component, Stream


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
            outlet,
            grouping=stream.grouping,
            keys=keys,
            selectivity=stream.selectivity,
            tuple_bytes=stream.tuple_bytes,
        )

    def stream(self, source: str, target: str) -> Stream:
        """Return the stream between two components."""
        return next(s for s in self.application.streams if (s.source, s.target) == (source, target))

    def shares(self) -> dict[str, float]:
        """Return each source's share of the load: by the declared rates, or else by the number of tasks."""
        application = self.application
        parts = application.rate_tps or {source.name: float(source.parallelism) for source in application.sources}
        return {name: part / sum(parts.values()) for name, part in parts.items()}
