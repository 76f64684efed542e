"""Simulation: an application in time slots, under any tuple policies, or event by event on the runtime's twin."""

from typing import TYPE_CHECKING

from penstock.model.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from penstock.model.costs import Costs
    from penstock.sim.events import Twin, TwinRun, TwinSpan
    from penstock.sim.slotted import Arrivals, SlottedResult, simulate
    from penstock.simulation.slotted import SlottedApplication, simulate_application
    from penstock.simulation.twin import simulate_events
    from penstock.workloads.potus import PotusWorkload, arrival_counts, potus_workload
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.model.costs": "Costs",
            "penstock.sim.events": "Twin, TwinRun, TwinSpan",
            "penstock.sim.slotted": "Arrivals, SlottedResult, simulate",
            "penstock.simulation.slotted": "SlottedApplication, simulate_application",
            "penstock.simulation.twin": "simulate_events",
            "penstock.workloads.potus": "PotusWorkload, arrival_counts, potus_workload",
        },
    )

__all__ = [
    "Arrivals",
    "Costs",
    "PotusWorkload",
    "SlottedApplication",
    "SlottedResult",
    "Twin",
    "TwinRun",
    "TwinSpan",
    "arrival_counts",
    "potus_workload",
    "simulate",
    "simulate_application",
    "simulate_events",
]
