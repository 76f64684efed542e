"""`penstock sim twin`: simulate an emulated run event by event."""

from pathlib import Path
from typing import Any

import numpy as np

from penstock.cli import inputs
from penstock.cli.output import console, duration, number, print_json, table
from penstock.cli.plots import BAR, BEST, GREY, panels, save_figure, tidy
from penstock.cli.sim import scenario
from penstock.model.costs import Costs
from penstock.model.files import load_costs
from penstock.model.taskgraph import Floats, expand_tasks, sum_by, task_names
from penstock.runtime.storage.run_folder import refuse_unwritable
from penstock.sim.events import Twin
from penstock.simulation.twin import DEFAULT_SECONDS, TwinResult, simulate_events

PERCENTILES = ("mean_s", "p50_s", "p95_s", "p99_s")
MOST_MACHINES = 12  # in the table; --json has all
FULL = 0.95  # used share of a machine's cores above which it is marked
POINTS = 2000  # of a line; more are invisible
RAREST = 1e-4  # share of tuples down to which the distribution is drawn, if there are enough


def twin(
    application: inputs.ApplicationArgument,
    cluster: inputs.ClusterArgument,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    policy: scenario.PolicyOption = None,
    plan: scenario.PlanOption = None,
    arrivals: scenario.ArrivalsOption = None,
    rate: scenario.RateOption = None,
    duration: scenario.DurationOption = None,
    warm_up: scenario.WarmUpSecondsOption = None,
    seed: scenario.SeedsOption = None,
    costs: scenario.CostsOption = None,
    records: scenario.RecordsOption = None,
    plot: scenario.PlotOption = None,
    as_json: inputs.JsonOption = False,
) -> None:
    """Simulate an emulated run event by event: latency, throughput, load.

    There are no slots: every tuple is processed, sent and queued at its own time, as on emulated machines (shared
    cores, network cards, links, credits). Streams keep their groupings.

    Example: penstock sim twin word-count li-10 --policy t-storm --rate 5000 --duration 60
    """
    inputs.refuse_file(plot, inputs.PICTURES, application, cluster)
    if records is not None:
        refuse_unwritable(records, "--records")  # before the simulation
    case = scenario.find_scenario(
        application, cluster, inputs.chosen_parameters(parameter, parameters), plan, policy, seed
    )
    found = simulate_events(
        Twin(case.application, case.cluster, Costs() if costs is None else load_costs(costs)),
        case.placement,
        rate=rate,
        arrivals=scenario.find_arrivals(arrivals),
        seconds=DEFAULT_SECONDS if duration is None else duration,
        warm_up=warm_up,
        seeds=case.seeds,
        records=records,
    )
    if plot is not None:
        plot_events(found, case, plot)
    if as_json:
        _print_json(case, found)
    else:
        _print(case, found, plot, records)


def warning(found: TwinResult) -> str | None:
    """Describe an overload in one line; None: there is none."""
    load, offered = found.load, number(found.load.offered_tps, 4)
    if load.exceeded:
        return (
            f"overload: {load.limit} is used up at {number(load.capacity_tps, 4)}/s of the {offered}/s offered: "
            "latencies grow without bound"
        )
    if found.behind:
        ended = number(found.mean("throughput_tps"), 4)
        return f"only {ended}/s of the {offered}/s offered end: latencies grow without bound"
    return None


def _print(case: scenario.Scenario, found: TwinResult, plot: Path | None, records: Path | None) -> None:
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
    if plot is not None:
        console.print(f"drew {plot}")
    if records is not None:
        console.print(f"wrote telemetry to {records}; penstock report {records} reads it", soft_wrap=True)
    console.print("Simulated, nothing ran.", style="dim")


def _tables(case: scenario.Scenario, found: TwinResult) -> list[Any]:
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


def _by_component(case: scenario.Scenario, found: TwinResult) -> dict[str, float]:
    """Return the tuples per second that each component processes."""
    tasks = expand_tasks(case.application)
    total = sum_by(tasks.component, found.average("processed"), len(tasks.position)) / found.spans[0].seconds
    names = [case.application.components[position].name for position in tasks.position]
    return {name: float(total[number]) for number, name in enumerate(names)}


def _print_json(case: scenario.Scenario, found: TwinResult) -> None:
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


def plot_events(found: TwinResult, case: scenario.Scenario, path: Path) -> None:
    """Draw the latencies of every seed, and the share of each machine's cores in use."""
    figure, (left, right) = panels(1, 2, 12, 4.4)
    least = 0.1
    for span, seed in zip(found.spans, case.seeds, strict=True):
        if len(span.latencies):
            times, shares = longer(span.latencies)
            left.plot(times * 1e3, shares, label=f"seed {seed}", linewidth=1.4)
            least = min(least, shares[-1])
    left.set_yscale("log")
    left.set_ylim(least, 1.0)
    left.set_xlabel("latency (ms)")
    left.set_ylabel("share of source tuples that take longer")
    if len(case.seeds) > 1:
        left.legend(frameon=False, fontsize=8)
    used = found.average("machine_cpu")
    names = [machine.name for machine in case.cluster.machines]
    right.bar(names, used, color=[BEST if share > FULL else BAR for share in used])
    right.axhline(1.0, color=GREY, linewidth=0.8)
    right.set_ylim(0.0, 1.05)
    right.set_xlabel("machine")
    right.set_ylabel("share of the machine's cores in use")
    right.tick_params(axis="x", labelrotation=90 if len(names) > 10 else 0)
    for axis in (left, right):
        tidy(axis)
    title = f"{case.application.name} on {case.cluster.name}, {found.load.offered_tps:,.0f} tuples/s: simulated"
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path)


def longer(latencies: Floats) -> tuple[Floats, Floats]:
    """Return times, and the share of tuples that take longer than each, down to one tuple."""
    shares = np.geomspace(1.0, max(RAREST, 1.0 / len(latencies)), POINTS)
    return np.quantile(latencies, 1.0 - shares), shares
