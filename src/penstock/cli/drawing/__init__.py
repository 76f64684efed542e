"""Drawings for the terminal: applications, clusters and plans in box-drawing characters and colours."""

from rich.text import Text

from penstock.cli.drawing.cluster import draw_cluster
from penstock.cli.drawing.facts import facts
from penstock.cli.drawing.plan import draw_plan
from penstock.cli.drawing.topology import draw_topology
from penstock.cli.planned_load import PlannedLoad
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.topology import Application

__all__ = ["draw", "draw_cluster", "draw_plan", "draw_topology", "facts"]


def draw(thing: Application | Cluster | Plan, width: int, load: PlannedLoad | None = None) -> list[Text]:
    """Return the drawing of a thing, line by line, none wider than `width` cells; `load` is that of a plan."""
    if isinstance(thing, Cluster):
        return draw_cluster(thing, width)
    return draw_plan(thing, width, load) if isinstance(thing, Plan) else draw_topology(thing, width)
