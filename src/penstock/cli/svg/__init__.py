"""Drawings as SVG files: applications, clusters and plans, each complete in itself."""

from penstock.cli.planned_load import PlannedLoad
from penstock.cli.svg.cluster import cluster_svg
from penstock.cli.svg.plan import plan_svg
from penstock.cli.svg.topology import topology_svg
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.topology import Application

__all__ = ["cluster_svg", "plan_svg", "svg", "topology_svg"]


def svg(thing: Application | Cluster | Plan, load: PlannedLoad | None = None) -> bytes:
    """Return the drawing of a thing as an SVG file; `load` is that of a plan."""
    if isinstance(thing, Cluster):
        return cluster_svg(thing)
    return plan_svg(thing, load) if isinstance(thing, Plan) else topology_svg(thing)
