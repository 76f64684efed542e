"""`penstock sim scaling`: compare scaling policies on recorded arrivals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from penstock.api.sources.pace import ArrivalProcess
from penstock.cli import inputs
from penstock.cli.flows import both
from penstock.cli.formatting import percent, plural
from penstock.cli.output import console, duration, number, policy_cell, print_json, table
from penstock.cli.plots import BEST, GREY, panels, save_figure, tidy
from penstock.cli.progress import counting
from penstock.cli.sim.forecast import COLOURS
from penstock.cli.sim.scenario import CostsOption, find_arrivals
from penstock.experiments.autoscaling import ScalingOutcome, ScalingScenario, compare_scaling, on_front
from penstock.experiments.pictures import Axes
from penstock.model.costs import Costs
from penstock.model.errors import InvalidInput
from penstock.model.files import load_costs
from penstock.planning.sizing import USUAL_POLICY
from penstock.policies.registry import PolicyKind, names, placement_policy, scaling_policy

USUAL_INTERVAL_S = 300.0  # of the recording
FIXED = "fixed"
HOUR_S = 3600.0

ArrivalsArgument = Annotated[
    str,
    typer.Argument(
        metavar="ARRIVALS",
        help="Arrivals of all sources together: a trace, FILE:rate=6000,speed=300, or a process such as "
        "diurnal:rate=400.",
    ),
]
ScalingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scaling",
        help="Scaling policy, NAME or NAME:PARAMETER=VALUE; repeatable; all: all others; default: all.",
        autocompletion=inputs.completing(*names(PolicyKind.SCALING), "all"),
    ),
]
PlacementOption = Annotated[str, typer.Option("--policy", help="Policy that places the tasks.", metavar="POLICY")]
IntervalsOption = Annotated[int, typer.Option(help="Number of intervals to simulate.", min=1)]
KnownOption = Annotated[int, typer.Option(help="Intervals before, which policies know as the past.", min=0)]
IntervalOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Simulated length of an interval; default: five minutes of a recording."),
]
PauseOption = Annotated[
    float, typer.Option(metavar="SECONDS", help="Time for which a rescale suspends the application.", min=0)
]
LateOption = Annotated[float, typer.Option(metavar="SECONDS", help="Latency above which a tuple is late.")]
PlotOption = Annotated[Path | None, typer.Option(help="Draw lateness, cost and machines over time.")]


def scaling(
    application: inputs.ApplicationArgument,
    cluster: inputs.ClusterArgument,
    arrivals: ArrivalsArgument,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    policy: ScalingOption = None,
    placement: PlacementOption = USUAL_POLICY,
    intervals: IntervalsOption = 288,
    known: KnownOption = 0,
    interval: IntervalOption = None,
    pause: PauseOption = 0.1,
    late: LateOption = 0.1,
    seed: inputs.SeedOption = 0,
    costs: CostsOption = None,
    plot: PlotOption = None,
    as_json: inputs.JsonOption = False,
) -> None:
    """Compare scaling policies on recorded arrivals.

    The application runs on the twin. At the end of each interval a policy decides the number of tasks. A rescale
    suspends the application, and the tuples in flight are processed again. Reported are late tuples, machine-hours (of
    the recording, if it is accelerated) and the number of rescales, also for fixed sizes on 1, 2, … machines; of these
    only those that no other fixed size beats. ★ marks the Pareto front of late tuples and machine-hours.

    Example: penstock sim scaling word-count homogeneous-8 diurnal:rate=6000,period=288 --interval 1
    """
    inputs.refuse_file(plot, inputs.PICTURES, application, cluster)
    wanted, machines = both(application, cluster, inputs.chosen_parameters(parameter, parameters))
    process, chosen = find_arrivals(arrivals), _chosen(policy or ["all"])
    placement_policy(placement)
    assert process is not None, "there is a text"
    scenario = ScalingScenario(
        wanted,
        machines,
        process,
        intervals,
        _interval(process, interval),
        known=known,
        rescale_s=pause,
        late_s=late,
        policy=placement,
        costs=Costs() if costs is None else load_costs(costs),
        seed=seed,
    )
    with counting("simulating", len(chosen) + len(machines.machines), as_json) as advance:
        found = compare_scaling(scenario, chosen, lambda spec: advance(spec, 1))
    speed = float(getattr(process, "speed", 1.0))
    if plot is not None:
        _plot(scenario, found, speed, plot)
    if as_json:
        _print_json(scenario, found, speed)
        return
    _print(scenario, found, speed)
    if plot is not None:
        console.print(f"drew {plot}")


def _chosen(specs: Sequence[str]) -> list[str]:
    """Return the requested policies without duplicates; `all` adds every one that is not named itself."""
    named = list(dict.fromkeys(spec for spec in specs if spec != "all"))
    for spec in named:
        scaling_policy(spec)
    bare = {spec.partition(":")[0] for spec in named}
    others = [name for name in names(PolicyKind.SCALING) if name not in bare and name != FIXED]
    return [spec for spec in [*named, *(others if "all" in specs else [])] if spec != FIXED]


def _interval(process: ArrivalProcess, given: float | None) -> float:
    """Return the simulated length of an interval."""
    if given is not None:
        return given
    speed = getattr(process, "speed", None)
    if speed is None:
        raise InvalidInput("interval", "expected a number of seconds for what is no recording; add --interval")
    return USUAL_INTERVAL_S / float(speed)


def _hours(outcome: ScalingOutcome, speed: float) -> float:
    return outcome.machine_s * speed / HOUR_S


def _print(scenario: ScalingScenario, found: Sequence[ScalingOutcome], speed: float) -> None:
    rates = scenario.arrived[scenario.known :] / scenario.interval_s
    console.print(
        f"[bold]{scenario.application.name}[/] on [bold]{scenario.cluster.name}[/], "
        f"{plural(scenario.intervals, 'interval')} of {duration(scenario.interval_s)}, placed by {scenario.policy}",
        soft_wrap=True,
    )
    accelerated = f", {speed:g} times as fast as recorded" if speed != 1.0 else ""
    console.print(
        f"[dim]{number(float(rates.min()))} to {number(float(rates.max()))}/s, mean {number(float(rates.mean()))}/s"
        f"{accelerated}; late: after {duration(scenario.late_s)}; a rescale takes {duration(scenario.rescale_s)}[/]\n",
        soft_wrap=True,
    )
    rows = table("policy", "late", "late\nshare", "machine-\nhours", "machines\nmean", "rescales")
    for outcome in found:
        mean = outcome.machine_s / scenario.interval_s / scenario.intervals
        rows.add_row(
            policy_cell(outcome.policy, on_front(outcome, found)),
            f"{outcome.late:,}",
            _share(outcome.late_share),
            f"{_hours(outcome, speed):,.1f}",
            f"{mean:.2f}",
            str(outcome.rescales),
        )
    console.print(rows)
    console.print("★ on the Pareto front of late tuples and machine-hours. Simulated, nothing ran.", style="dim")


def _share(share: float) -> str:
    return f"{share:.2%}" if 0 < share < 0.1 else percent(share)


def _print_json(scenario: ScalingScenario, found: Sequence[ScalingOutcome], speed: float) -> None:
    print_json(
        {
            "application": scenario.application.name,
            "cluster": scenario.cluster.name,
            "intervals": scenario.intervals,
            "interval_s": scenario.interval_s,
            "known": scenario.known,
            "speed": speed,
            "late_s": scenario.late_s,
            "pause_s": scenario.rescale_s,
            "outcomes": [_record(outcome, found, speed) for outcome in found],
        }
    )


def _record(outcome: ScalingOutcome, found: Sequence[ScalingOutcome], speed: float) -> dict[str, Any]:
    return {
        "policy": outcome.policy,
        "offered": outcome.offered,
        "late": outcome.late,
        "late_share": outcome.late_share,
        "machine_hours": _hours(outcome, speed),
        "rescales": outcome.rescales,
        "on_front": on_front(outcome, found),
        "intervals": [{**one._asdict(), "tasks": one.tasks} for one in outcome.intervals],
    }


def _plot(scenario: ScalingScenario, found: Sequence[ScalingOutcome], speed: float, path: Path) -> None:
    """Draw late tuples against machine-hours, and each policy's machines over time under the arrivals."""
    policies = [one for one in found if not one.policy.startswith(FIXED)]
    colour = {one.policy: COLOURS[place % len(COLOURS)] for place, one in enumerate(policies)}
    for one in policies:
        if on_front(one, found):
            colour[one.policy] = BEST
    figure, axes = panels(1 + len(policies), 2, 13, 2.0 + 1.5 * len(policies), width_ratios=(2, 3))
    grid = axes[0][0].get_gridspec()
    for row in axes:
        row[0].remove()
    _draw_front(figure.add_subplot(grid[:, 0]), found, colour, speed)
    minutes = np.arange(scenario.intervals + 1) * scenario.interval_s * speed / 60.0
    _draw_steps(axes[0][1], minutes, scenario.arrived[scenario.known :] / scenario.interval_s, GREY, "tuples/s")
    for axis, one in zip((row[1] for row in axes[1:]), policies, strict=True):
        _draw_steps(axis, minutes, [float(each.machines) for each in one.intervals], colour[one.policy], one.policy)
    axes[-1][1].set_xlabel("minutes of the recording" if speed != 1.0 else "minutes")
    figure.suptitle(
        f"{scenario.application.name} on {scenario.cluster.name}: late tuples against machine-hours, and machines over "
        "time; the Pareto front in orange",
        fontsize=10,
    )
    save_figure(figure, path)


def _draw_front(axis: Axes, found: Sequence[ScalingOutcome], colour: dict[str, str], speed: float) -> None:
    fixed = [one for one in found if one.policy not in colour]
    axis.plot(
        [_hours(one, speed) for one in fixed],
        [100 * one.late_share for one in fixed],
        color=GREY,
        marker="o",
        linewidth=1.0,
        label="fixed sizes",
    )
    for one in found:
        if one.policy in colour:
            axis.scatter(
                [_hours(one, speed)], [100 * one.late_share], color=colour[one.policy], s=60, zorder=3, clip_on=False
            )
            note = f"{one.policy}, {plural(one.rescales, 'rescale')}"
            place = (_hours(one, speed), 100 * one.late_share)
            axis.annotate(note, place, (6, 6), textcoords="offset points", fontsize=8)
    axis.set_yscale("symlog", linthresh=0.1)
    axis.set_ylim(bottom=0)
    axis.margins(x=0.25)  # room for labels
    axis.set_xlabel("machine-hours")
    axis.set_ylabel("late tuples (%)")
    axis.legend(frameon=False, fontsize=8)
    tidy(axis)


def _draw_steps(axis: Axes, minutes: Any, by_interval: Any, shade: str, label: str) -> None:
    values = np.append(by_interval, by_interval[-1])  # the last one lasts until the end
    axis.fill_between(minutes, values, step="post", color=shade, alpha=0.35, linewidth=0)
    axis.step(minutes, values, where="post", color=shade, linewidth=1.0)
    axis.set_ylim(bottom=0)
    axis.locator_params(axis="y", integer=True)
    axis.set_ylabel(label, fontsize=8)
    tidy(axis, "y")
