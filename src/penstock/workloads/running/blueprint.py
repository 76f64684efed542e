"""A model's topology as the plan by which a dataflow is built: sizes and costs are taken from it, none stated twice."""

from dataclasses import replace
from typing import Any

from penstock.api.dataflow import Outlet
from penstock.api.keys import Key
from penstock.model.topology import Application, Component, Stream


class Blueprint:
    """What a dataflow's components and streams take over from a model's application."""

    def __init__(self, application: Application) -> None:
        self.application = application

    def costs(self, name: str) -> dict[str, Any]:
        """Return the parallelism, costs and pins of a component, as keywords of `Dataflow`'s methods."""
        component = self.application[name]
        return {
            field: getattr(component, field) for field in Component.__struct_fields__ if field not in ("name", "kind")
        }

    def way(self, outlet: Outlet, target: str, *keys: Key) -> Outlet:
        """Return an outlet with the grouping and costs of the stream that leads to a component."""
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
        """Return each source's share of the load: by the stated rates, or else by the number of tasks."""
        application = self.application
        parts = application.rate_tps or {source.name: float(source.parallelism) for source in application.sources}
        return {name: part / sum(parts.values()) for name, part in parts.items()}
