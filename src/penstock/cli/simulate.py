"""`penstock simulate`: which way should tuples go in my application, and which queue should send first?"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.app import app
from penstock.cli.inputs import (
    JsonOption,
    application_names,
    cluster_names,
    policy_names,
    refuse_outputs,
)
from penstock.cli.inputs import application as find_application
from penstock.cli.inputs import cluster as find_cluster

if TYPE_CHECKING:
    from penstock.control.simulating import Load, Look, Setting, Simulated, Simulation
    from penstock.model.placement import Placement
    from penstock.model.topology import Application
    from penstock.workloads.arrivals import ArrivalProcess

EXAMPLES = """Examples:

  penstock simulate word-count li-10

  penstock simulate word-count li-10 --routing shuffle --routing potus:v=3 --arrivals on-off:rate=4000,burst=0.5

  penstock simulate my-app.toml my-cluster.toml --plan plan.toml --arrivals replay:path=trace.csv,rate=900 --plot my.png

  penstock simulate word-count li-10 --routing potus --look-ahead 5 --forecaster kalman --seed 0 --seed 1 --seed 2

  penstock simulate word-count li-10 --link 60 --sending longest-backlog-first --routing least-loaded
"""
USUAL_POLICY = "t-heron"
WIDE = 110  # columns of a terminal with room for everything
COLUMNS = (
    "response\nms", "p99\nms", "slots", "cost\n/slot", "× least", "backlog", "queue", "waits\nms", "Jain", "left",
)  # fmt: skip
NARROW = ("response\nms", "p99\nms", "cost\n/slot", "× least", "backlog", "left")
NARROW_SENDING = ("response\nms", "p99\nms", "backlog", "queue", "waits\nms", "Jain", "left")


def _completer(kind: str, *more: str) -> Callable[[str], list[str]]:
    """Return what completes the name of a policy of a kind."""

    def complete(incomplete: str) -> list[str]:
        from penstock.policies.registry import PolicyKind, names

        return [name for name in (*names(PolicyKind(kind)), *more) if name.startswith(incomplete)]

    return complete


@app.command(epilog=EXAMPLES)
def simulate(
    application: Annotated[
        str,
        typer.Argument(
            help="A file (.toml, .json), a built-in name, or module:object.", autocompletion=application_names
        ),
    ],
    cluster: Annotated[
        str, typer.Argument(help="A file (.toml, .json; .graph) or a built-in name.", autocompletion=cluster_names)
    ],
    routing: Annotated[
        list[str] | None,
        typer.Option(
            help="Which way tuples go: NAME or NAME:PARAMETER=VALUE; repeat to compare; all: every other one.",
            autocompletion=_completer("routing", "all"),
        ),
    ] = None,
    sending: Annotated[
        str | None,
        typer.Option(
            help="Which out-queue of a machine sends first; with --link. Without it, fifo.",
            autocompletion=_completer("sending"),
        ),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            metavar="PROCESS",
            help="What comes to all sources together, its rate a second: poisson:rate=900. Without it, Poisson at the "
            "application's own rate, or at 80 % of what it can carry.",
        ),
    ] = None,
    slots: Annotated[int, typer.Option(help="How many slots of time.", min=1)] = 10_000,
    slot_ms: Annotated[float, typer.Option("--slot-ms", help="A slot's length in milliseconds.")] = 10.0,
    warm_up: Annotated[
        int | None, typer.Option("--warm-up", help="Slots at first that do not count; without it, a tenth.", min=0)
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help=f"Who places the tasks; without it, {USUAL_POLICY}.", autocompletion=policy_names),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Instead of --policy: a plan file that says where tasks are.")
    ] = None,
    look_ahead: Annotated[
        int | None, typer.Option("--look-ahead", metavar="SLOTS", help="How far ahead sources see.", min=0)
    ] = None,
    forecaster: Annotated[
        str | None,
        typer.Option(
            help="What they see; without it, exactly what will come. Alone: one slot ahead.",
            autocompletion=_completer("forecast"),
        ),
    ] = None,
    link: Annotated[
        int | None,
        typer.Option(metavar="TUPLES", help="Tuples that may leave a machine a slot; without it, any number.", min=1),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Repeat for means over several.", min=0)] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Verify in every slot that no tuple is lost or doubled; slower.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw backlogs and response times (.png, .svg, .pdf).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate an application slot by slot, and compare ways of routing its tuples.

    Response is from a source tuple's arrival to the last that follows from it. Cost is what a slot's tuples cross
    between machines, in links (1 between machines where there are none); × least relates it to the least at which any
    routing can carry the load (below 1 is one that does not). Backlog is what waits in all queues, queue the longest
    out-queue there was, waits the mean wait in one, Jain how equal they are (1: all the same). Left are source tuples
    not finished at the end: they count with their age. Narrow terminals show fewer columns, --json shows more.

    It follows POTUS's equations: tasks decide once a slot, tuples sent in one slot are there in the next. Streams by
    key keep their grouping; their keys, a thousand, are equally likely.
    """
    from penstock.control.simulating import Setting, all_routings, simulate_application

    refuse_outputs(None, plot, application, cluster)
    wanted = find_application(application)
    machines = find_cluster(cluster)
    process, look = _process(arrivals), _look(look_ahead, forecaster)
    seeds = list(dict.fromkeys(seed or [0]))
    placement, placed_by = _placement(wanted, machines, policy, plan, seeds[0])
    setting = Setting(wanted, machines, placement, slot_ms, link)
    named = list(dict.fromkeys(spec for spec in routing or ["all"] if spec != "all"))
    routings = all_routings(setting, named) if "all" in (routing or ["all"]) else named
    with _Progress(len(routings) * len(seeds), quiet=as_json) as progress:
        found = simulate_application(
            setting, routings, sends=sending, arrivals=process, slots=slots, warm_up=warm_up, look=look, seeds=seeds,
            check=check, on_result=progress.advance,
        )  # fmt: skip
    if plot is not None:
        from penstock.cli.simulate_plots import plot_simulation

        plot_simulation(found, f"{wanted.name} on {machines.name}", plot)
    if as_json:
        _print_json(setting, found, placed_by, seeds)
        return
    _print(setting, found, placed_by, arrivals, look, len(seeds))
    from penstock.cli.output import console

    if check:
        console.print("checked: in every slot every tuple was in exactly one place", style="dim")
    if plot is not None:
        console.print(f"drew {plot}")


def _process(spec: str | None) -> "ArrivalProcess | None":
    """Return the arrival process of a text; a recording is read, so that a missing one is told at once."""
    from penstock.model.errors import InvalidInput
    from penstock.workloads.arrivals import Replay, arrivals

    if spec is None:
        return None
    process = arrivals(spec)
    if process.slot != 1.0:
        raise InvalidInput("arrivals.slot", f"expected none, got {process.slot:g}; use --slot-ms")
    if isinstance(process, Replay):
        process.trace  # noqa: B018  reading it is the check
    return process


def _look(ahead: int | None, forecaster: str | None) -> "Look":
    from penstock.control.simulating import Look
    from penstock.policies.registry import forecaster as make

    if forecaster is None:
        return Look(ahead or 0)
    make(forecaster)
    return Look(1 if ahead is None else ahead, forecaster)


def _placement(
    application: "Application", cluster: Any, policy: str | None, plan: Path | None, seed: int
) -> "tuple[Placement, str]":
    """Return where tasks are, and by whom."""
    from penstock.control.planner import Planner
    from penstock.model.errors import InvalidInput
    from penstock.model.files import load_plan
    from penstock.model.placement import Infeasible
    from penstock.model.plan import to_placement

    if plan is not None:
        if policy is not None:
            raise InvalidInput("policy", f"expected a plan or a policy, got --plan {plan} and {policy}; leave one out")
        return to_placement(load_plan(plan), application, cluster), str(plan)
    chosen = policy or USUAL_POLICY
    result = Planner(application, cluster, seed=seed).decide(chosen).result
    if isinstance(result, Infeasible):
        raise InvalidInput("policy", f"{chosen} finds no placement: {result.reason}")
    return result, chosen


class _Progress:
    """A bar that counts simulations, where somebody looks."""

    def __init__(self, total: int, quiet: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from penstock.cli.output import errors

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._shown = Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal)
        self._bar = self._shown.add_task("simulating", total=total)

    def __enter__(self) -> "_Progress":
        self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.stop()

    def advance(self, routing: str) -> None:
        """Count one."""
        self._shown.update(self._bar, description=routing, advance=1)


def _print(
    setting: "Setting", found: "Simulation", placed_by: str, arrivals: str | None, look: "Look", seeds: int
) -> None:
    from penstock.cli.output import console, number, table
    from penstock.cli.words import plural

    load = found.load
    console.print(
        f"[bold]{setting.topology.name}[/] ({setting.topology.task_count} tasks) on [bold]{setting.cluster.name}[/], "
        f"placed by {placed_by}",
        soft_wrap=True,
    )
    known = getattr(setting.topology, "offered_tps", None) is not None
    origin = arrivals or ("Poisson at its own rate" if known else "Poisson at 80 % of what it can carry")
    ahead = f"; sources look {plural(look.ahead, 'slot')} ahead ({look.forecaster})" if look.ahead else ""
    console.print(
        f"[dim]{found.slots:,} slots of {found.slot_ms:g} ms, {found.warm_up:,} of them warm-up; {origin}: "
        f"{number(load.offered_tps, 4)}/s offered{ahead}{f'; means over {seeds} seeds' if seeds > 1 else ''}[/]\n",
        soft_wrap=True,
    )
    columns = COLUMNS if console.width >= WIDE else NARROW_SENDING if setting.link is not None else NARROW
    rows = table("routing", *columns)
    for result in found.results:
        cells = _cells(found, result)
        rows.add_row(_name(result, result is found.best), *(cells[column] for column in columns))
    console.print(rows)
    _print_warning(load)
    spread = "; ± one standard deviation over seeds" if seeds > 1 else ""
    star = "★ least mean response time, within 1 % the least cost"
    console.print(f"\n{star}{spread}. Simulated, nothing ran.", style="dim", soft_wrap=True)


def _name(result: "Simulated", best: bool) -> str:
    from penstock.cli.output import policy_cell

    return policy_cell(result.routing, best)


def _cells(found: "Simulation", result: "Simulated") -> dict[str, str]:
    from penstock.cli.output import number

    response, least = result.mean("response"), found.load.least_cost
    spread = f" ±{number(result.deviation('response') * found.slot_ms, 2)}" if len(result.outcomes) > 1 else ""
    ratio = result.mean("cost") / least if least else None
    return {
        "response\nms": number(response * found.slot_ms) + spread,
        "p99\nms": number(result.mean("response_p99") * found.slot_ms),
        "slots": number(response),
        "cost\n/slot": number(result.mean("cost")),
        "× least": "-" if ratio is None else f"{ratio:.3f}",
        "backlog": number(result.mean("backlog")),
        "queue": f"{max(outcome.longest for outcome in result.outcomes):,}",
        "waits\nms": number(result.mean("queueing") * found.slot_ms),
        "Jain": f"{result.mean('fairness'):.2f}",
        "left": number(result.mean("unfinished")),
    }


def warning(load: "Load") -> str | None:
    """Say in one line that more comes than can be carried, and what the limit is."""
    from penstock.cli.output import number

    if load.exceeded:
        return (
            f"overload: {load.limit} is used up at {number(load.carried_tps, 4)}/s of the "
            f"{number(load.offered_tps, 4)}/s offered, whatever the routing: queues grow as long as one looks"
        )
    if load.uneven:
        return (
            f"an even split uses up {load.even_limit} at {number(load.even_tps, 4)}/s of the "
            f"{number(load.offered_tps, 4)}/s offered: only routings that look at load can keep up"
        )
    return None


def _print_warning(load: "Load") -> None:
    from penstock.cli.output import console

    if (text := warning(load)) is not None:
        console.print(f"[yellow]{text}[/]", soft_wrap=True)


def _print_json(setting: "Setting", found: "Simulation", placed_by: str, seeds: Sequence[int]) -> None:
    from penstock.cli.output import print_json

    load = found.load
    print_json(
        {
            "application": setting.topology.name,
            "cluster": setting.cluster.name,
            "placement": placed_by,
            "slots": found.slots,
            "slot_ms": found.slot_ms,
            "warm_up": found.warm_up,
            "seeds": list(seeds),
            "load": load._asdict(),
            "warning": warning(load),
            "best": found.best.routing,
            "routings": [_record(found, result) for result in found.results],
        }
    )


def _record(found: "Simulation", result: "Simulated") -> dict[str, Any]:
    least = found.load.least_cost
    slots = {name: result.mean(name) for name in ("response", "response_p99", "response_max", "queueing")}
    others = ("cost", "backlog", "queued_in", "queued_out", "fairness", "tuples", "unfinished", "hops", "dropped")
    return {
        "routing": result.routing,
        **{f"{name}_slots": value for name, value in slots.items()},
        **{f"{name}_ms": value * found.slot_ms for name, value in slots.items()},
        "response_deviation_ms": result.deviation("response") * found.slot_ms,
        **{name: result.mean(name) for name in others},
        "longest": max(outcome.longest for outcome in result.outcomes),
        "cost_ratio": result.mean("cost") / least if least else None,
    }
