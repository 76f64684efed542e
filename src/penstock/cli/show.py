"""`penstock show`: draw an application, a cluster or a plan, on the terminal or as SVG."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import inputs
from penstock.cli.app_spec import guarantee_in_words
from penstock.cli.drawing import draw, facts
from penstock.cli.flows import both, find_flow, names_code, with_parameters
from penstock.cli.output import console, print_json, print_line, table, terminal_width
from penstock.cli.planned_load import PlannedLoad, load_of_built_in, planned_load
from penstock.cli.svg import svg as draw_svg
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.files import load_any, write_whole
from penstock.model.plan import Plan
from penstock.model.topology import Application
from penstock.workloads.applications import APPLICATIONS, application
from penstock.workloads.clusters import CLUSTERS, cluster, find_cluster


def show(
    thing: Annotated[
        str | None,
        typer.Argument(
            help="An application, cluster or plan: a file (.toml, .json, .graph), a built-in name, or your code.",
            autocompletion=inputs.completing(*APPLICATIONS, *CLUSTERS),
        ),
    ] = None,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    svg: Annotated[Path | None, typer.Option(help="Draw into this file (.svg) instead.")] = None,
    application: Annotated[
        str | None, typer.Option(help="The application of a plan; default: the built-in one of that name.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="The cluster of a plan; default: the built-in one of that name.")
    ] = None,
    as_json: inputs.JsonOption = False,
) -> None:
    """Draw an application, a cluster or a plan, or list built-in ones.

    A component's ×8 means that it has 8 tasks; a stream's ×10, that it carries 10 tuples per tuple of its source. With
    its application and cluster, a plan shows free slots, how busy machines and links are, and the bottleneck.

    Example: penstock show plan.toml --svg plan.svg
    """
    if thing is None:
        _list_built_in(as_json)
        return
    settings = inputs.chosen_parameters(parameter, parameters)
    flow = find_flow(thing, parameters=settings) if names_code(thing) else None
    found = _find(with_parameters(thing, settings)) if flow is None else flow.application
    inputs.refuse_file(svg, inputs.SVG)
    load = _load(found, application, cluster)
    if svg is not None:
        write_whole(svg, draw_svg(found, load))
    if as_json:
        print_json({_kind(found): found, "facts": facts(found)})
    elif svg is not None:
        print_line(f"drew {svg}")
    else:
        for line in draw(found, terminal_width(), load):
            console.print(line, no_wrap=True, overflow="ignore", crop=False)
        if flow is not None:
            print_line(guarantee_in_words(flow))


def _find(text: str) -> Application | Cluster | Plan:
    """Return the application, cluster or plan of a file or a built-in name."""
    name = text.partition(":")[0]
    if name in APPLICATIONS and not inputs.is_file(text):
        return application(text)
    if name in CLUSTERS and not inputs.is_file(text):
        return cluster(text)
    if inputs.is_network(text):
        return find_cluster(text)
    if inputs.is_file(text) or Path(text).exists():
        return _checked(text)
    there = nearest(name, [*APPLICATIONS, *CLUSTERS])
    raise UnknownName("thing", f"no application, cluster or file (.toml, .json) is named {name!r}; {there}")


def _checked(file: str) -> Application | Cluster | Plan:
    """Return the content of a file; reject a plan with unknown tuple policies."""
    found = load_any(file)
    if isinstance(found, Plan):
        inputs.check_policies_in(found, file)
    return found


def _load(thing: Application | Cluster | Plan, application: str | None, cluster: str | None) -> PlannedLoad | None:
    """Return the load of a plan; None if its application or cluster is unknown."""
    options = {"application": application, "cluster": cluster}
    for name, text in options.items():
        if text is not None and not isinstance(thing, Plan):
            raise InvalidInput(name, f"expected none for what is not a plan, got {text!r}; remove --{name}")
        if text is None and any(options.values()):
            raise InvalidInput(name, f"expected both --application and --cluster, got one; add --{name}")
    if not isinstance(thing, Plan):
        return None
    if application is None or cluster is None:
        return load_of_built_in(thing)
    return planned_load(thing, *both(application, cluster))


def _kind(thing: Application | Cluster | Plan) -> str:
    return type(thing).__name__.lower()


def _list_built_in(as_json: bool) -> None:
    listed = {
        "applications": {name: choice.summary for name, choice in APPLICATIONS.items()},
        "clusters": {name: choice.summary for name, choice in CLUSTERS.items()},
    }
    if as_json:
        print_json(listed)
        return
    for kind, summaries in listed.items():
        rows = table(kind, "", left=("",))
        for name, summary in summaries.items():
            rows.add_row(f"[bold]{name}[/]", summary)
        console.print(rows)
        console.print()
    console.print("[dim]Show one of them, or a file: penstock show THING[/]")
