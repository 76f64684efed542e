"""The event-driven twin of the runtime: an application on a described cluster in virtual time, event by event.

    twin = Twin(application, cluster, costs)
    run = twin.start(slots, seed=1)
    run.advance(10.0)
    span = run.advance(60.0)  # span.mean_s, span.throughput_tps, …

`twin` and `run` are the entry points, `span` has the results; `system`, `layout` and `state` have the tables of a
simulation, `steps`, `transport`, `service` and `loop` its events, `failures` machine failures, `records` telemetry.
"""

from penstock.sim.events.run import TwinRun
from penstock.sim.events.span import TwinSpan
from penstock.sim.events.twin import Twin

__all__ = ["Twin", "TwinRun", "TwinSpan"]
