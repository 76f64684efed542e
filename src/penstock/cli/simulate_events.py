"""`penstock simulate --events`: what would the latency of my application be, and where would its time go?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.model.cluster import Cluster
    from penstock.model.placement import Placement
    from penstock.model.topology import Application
    from penstock.simulation.twin import TwinResult
    from penstock.workloads.arrivals import ArrivalProcess

PERCENTILES = ("mean_s", "p50_s", "p95_s", "p99_s")
MOST_MACHINES = 12  # in the table; --json has all
FULL = 0.95  # share of a machine's cores in use from which on it is marked


class Case(NamedTuple):
    """What is simulated."""

    application: "Application"
    cluster: "Cluster"
    placement: "Placement"
    placed_by: str
    seeds: Sequence[int]


class Asked(NamedTuple):
    """How, as the command line has it."""

    rate: float | None
    arrivals: "ArrivalProcess | None"
    seconds: float | None
    warm_up: float | None
    costs: Path | None
    records: Path | None
    plot: Path | None
    as_json: bool


def refuse_slotted(given: Mapping[str, object]) -> None:
    """Refuse options that mean something only slot by slot."""
    from penstock.model.errors import InvalidInput

    for name, value in given.items():
        if value is not None and value is not False:
            told = "" if value is True else f", got {value if not isinstance(value, list) else ', '.join(value)}"
            problem = "expected none beside --events, which follows the groupings of streams and knows no slots of time"
            raise InvalidInput(name, f"{problem}{told}; leave one out")


def refuse_evented(given: Mapping[str, object]) -> None:
    """Refuse options that mean something only event by event."""
    from penstock.model.errors import InvalidInput

    for name, value in given.items():
        if value is not None:
            raise InvalidInput(name, f"expected --events beside it, got {value} without; add it, or leave this out")


def simulate_by_events(case: Case, asked: Asked) -> None:
    """Simulate event by event, and show what came of it."""
    from penstock.model.costs import Costs
    from penstock.model.files import load_costs
    from penstock.runtime.storage.run_folder import refuse_unwritable
    from penstock.simulation.twin import USUAL_SECONDS, simulate_events

    if asked.records is not None:
        refuse_unwritable(asked.records, "--records")  # not only when all has been simulated
    found = simulate_events(
        case.application,
        case.cluster,
        case.placement,
        rate=asked.rate,
        arrivals=asked.arrivals,
        seconds=USUAL_SECONDS if asked.seconds is None else asked.seconds,
        warm_up=asked.warm_up,
        seeds=case.seeds,
        costs=Costs() if asked.costs is None else load_costs(asked.costs),
        records=asked.records,
    )
    if asked.plot is not None:
        from penstock.cli.simulate_events_plots import plot_events

        plot_events(found, case, asked.plot)
    if asked.as_json:
        _print_json(case, found)
    else:
        _print(case, found, asked)


def warning(found: "TwinResult") -> str | None:
    """Say in one line that more comes than can be carried."""
    from penstock.cli.output import number

    load, offered = found.load, number(found.load.offered_tps, 4)
    if load.exceeded:
        return (
            f"overload: {load.limit} is used up at {number(load.even_tps, 4)}/s of the {offered}/s offered: "
            "latencies grow as long as one looks"
        )
    if found.behind:
        ended = number(found.mean("throughput_tps"), 4)
        return f"only {ended}/s of the {offered}/s offered end: latencies grow as long as one looks"
    return None


def _print(case: Case, found: "TwinResult", asked: Asked) -> None:
    from penstock.cli.output import console, duration, number

    application, seconds = case.application, found.spans[0].seconds
    console.print(
        f"[bold]{application.name}[/] ({application.task_count} tasks) on [bold]{case.cluster.name}[/], "
        f"placed by {case.placed_by}",
        soft_wrap=True,
    )
    several = f"; means over {len(case.seeds)} seeds" if len(case.seeds) > 1 else ""
    console.print(
        f"[dim]{seconds:g} s after {found.warm_up:g} s of warm-up, {number(found.load.offered_tps, 4)}/s offered"
        f"{several}[/]\n",
        soft_wrap=True,
    )
    mean, p50, p95, p99 = (duration(found.mean(measure)) for measure in PERCENTILES)
    spread = f" ± {duration(found.deviation('mean_s'))}" if len(case.seeds) > 1 else ""
    console.print(f"latency     {mean}{spread} mean, {p50} p50, {p95} p95, {p99} p99")
    console.print(
        f"throughput  {number(found.mean('throughput_tps'), 4)}/s, {number(found.mean('hops') / seconds, 4)} tuples/s "
        f"processed, {number(found.mean('in_flight'))} in flight at the end\n"
    )
    for made in _tables(case, found):
        console.print(made)
        console.print()
    if (text := warning(found)) is not None:
        console.print(f"[yellow]{text}[/]", soft_wrap=True)
    if asked.plot is not None:
        console.print(f"drew {asked.plot}")
    if asked.records is not None:
        console.print(f"wrote telemetry to {asked.records}; penstock report {asked.records} reads it", soft_wrap=True)
    console.print("Simulated, nothing ran.", style="dim")


def _tables(case: Case, found: "TwinResult") -> list[Any]:
    from penstock.cli.output import duration, number, table

    components = table("component", "tasks", "processed/s", "processing")
    processed = _by_component(case, found)
    for name, seconds in found.by_name("component_processing_s").items():
        tasks = case.application[name].parallelism
        components.add_row(name, str(tasks), number(processed[name], 4), duration(seconds) if processed[name] else "-")
    streams = table("stream", "tuples/s", "transfer")
    counts, span = found.by_name("stream_tuples"), found.spans[0].seconds
    for label, seconds in found.by_name("stream_transfer_s").items():
        streams.add_row(label, number(counts[label] / span, 4), duration(seconds) if counts[label] else "-")
    machines = table("machine", "cores", "in use")
    used = found.average("machine_cpu")
    order = sorted(range(len(used)), key=lambda number: -used[number])
    for place in order[:MOST_MACHINES]:
        machine, share = case.cluster.machines[place], f"{used[place]:.0%}"
        machines.add_row(machine.name, str(machine.cores), f"[yellow]{share}[/]" if used[place] > FULL else share)
    if len(order) > MOST_MACHINES:
        machines.add_row(f"… {len(order) - MOST_MACHINES} more", "", "")
    return [components, streams, machines]


def _by_component(case: Case, found: "TwinResult") -> dict[str, float]:
    """Return the tuples a second that each component processes."""
    from penstock.model.taskgraph import expand_tasks, sum_by

    tasks = expand_tasks(case.application)
    total = sum_by(tasks.component, found.average("processed"), len(tasks.position)) / found.spans[0].seconds
    names = [case.application.components[position].name for position in tasks.position]
    return {name: float(total[number]) for number, name in enumerate(names)}


def _print_json(case: Case, found: "TwinResult") -> None:
    from penstock.cli.output import print_json
    from penstock.model.taskgraph import task_names

    seconds = found.spans[0].seconds
    counts = ("offered", "emitted", "completed", "lost", "in_flight", "waiting", "hops")
    processed, used = _by_component(case, found), found.average("machine_cpu")
    tasks = {name: found.average(name) for name in ("processed", "busy_s", "processing_s", "wait_s", "queue")}
    print_json(
        {
            "application": case.application.name,
            "cluster": case.cluster.name,
            "placement": case.placed_by,
            "seconds": seconds,
            "warm_up": found.warm_up,
            "seeds": list(case.seeds),
            "load": found.load._asdict(),
            "warning": warning(found),
            "latency": {measure: found.mean(measure) for measure in PERCENTILES},
            "mean_deviation_s": found.deviation("mean_s"),
            "throughput_tps": found.mean("throughput_tps"),
            **{measure: found.mean(measure) for measure in counts},
            "components": [
                {"component": name, "processed_tps": processed[name], "processing_s": value}
                for name, value in found.by_name("component_processing_s").items()
            ],
            "streams": [
                {"stream": label, "tuples_tps": found.by_name("stream_tuples")[label] / seconds, "transfer_s": value}
                for label, value in found.by_name("stream_transfer_s").items()
            ],
            "machines": [
                {"machine": machine.name, "cpu": float(used[place])}
                for place, machine in enumerate(case.cluster.machines)
            ],
            "tasks": [
                {"task": name, **{measure: float(values[place]) for measure, values in tasks.items()}}
                for place, name in enumerate(task_names(case.application))
            ],
        }
    )
