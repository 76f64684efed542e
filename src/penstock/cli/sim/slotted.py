"""`penstock sim slotted`: simulate an application in time slots, and compare routing policies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.cli import inputs
from penstock.cli.formatting import plural
from penstock.cli.output import console, number, policy_cell, print_json, print_line, table
from penstock.cli.plots import BEST, GREY, panels, save_figure, tidy
from penstock.cli.progress import counting
from penstock.cli.sim import scenario
from penstock.experiments.pictures import DASHES, Axes
from penstock.model.errors import InvalidInput
from penstock.model.plan import Plan
from penstock.policies.registry import forecaster as make_forecaster
from penstock.policies.streams import SPREADING
from penstock.simulation.slotted import (
    DEFAULT_SLOT_MS,
    DEFAULT_SLOTS,
    LookAhead,
    RoutingComparison,
    RoutingResult,
    SlottedApplication,
    SlottedLoad,
    all_routings,
    planned_routing,
    simulate_application,
)

WIDE = 110  # columns of a terminal with room for everything
COLUMNS = (
    "response\nms", "p99\nms", "slots", "cost\n/slot", "× least", "backlog", "queue", "waits\nms", "Jain", "left",
)  # fmt: skip
NARROW = ("response\nms", "p99\nms", "cost\n/slot", "× least", "backlog", "left")
NARROW_SENDING = ("response\nms", "p99\nms", "backlog", "queue", "waits\nms", "Jain", "left")
OFF = 0.03  # relative difference of the actual and the requested rate that is reported
COLOURS = ("#4878a8", "#5b9a68", "#8a6bb1", "#b8963e", "#4fa6ad", "#a85c7f", "#6b6b8f", "#8c6d4f", "#7a9a3c")
POINTS = 250  # of a line over time; more would look like a band
FAR = 30.0  # ratio above which an axis is logarithmic
SERVED_AHEAD = 0.1  # slots that represent 0 on a logarithmic axis
RAREST = 1e-4  # share of tuples down to which the distribution is drawn


class SlottedReport(NamedTuple):
    """The settings of a simulation, and its results."""

    setting: SlottedApplication
    found: RoutingComparison
    placed_by: str
    arrivals: str | None  # as the user wrote it
    seeds: Sequence[int]
    notes: Sequence[str]  # for the user

    @property
    def origin(self) -> str:
        """The arrivals, in words."""
        known = getattr(self.setting.topology, "offered_tps", None) is not None
        return self.arrivals or ("Poisson at its own rate" if known else "Poisson at 80 % of what it can carry")

    @property
    def all_notes(self) -> list[str]:
        """The notes of the simulation, and one on a rate that differs from the requested one."""
        requested, offered = self.found.asked_tps, self.found.load.offered_tps
        if requested is None or abs(offered / requested - 1) <= OFF:
            return list(self.notes)
        seconds = (self.found.slots - self.found.warm_up) * self.found.slot_ms / 1e3
        arrived = f"{number(offered, 4)}/s arrived in the {number(seconds)} measured s"
        difference = f"{arrived}, {number(requested, 4)}/s were requested"
        return [f"{difference}: the rate is a mean over a longer time; add --slots", *self.notes]


def slotted(
    application: inputs.ApplicationArgument,
    cluster: inputs.ClusterArgument,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    routing: scenario.RoutingsOption = None,
    sending: scenario.SendingOption = None,
    arrivals: scenario.ArrivalsOption = None,
    slots: scenario.SlotsOption = None,
    slot_ms: scenario.SlotOption = None,
    warm_up: scenario.WarmUpOption = None,
    policy: scenario.PolicyOption = None,
    plan: scenario.PlanOption = None,
    look_ahead: scenario.LookAheadOption = None,
    forecaster: scenario.ForecasterOption = None,
    link: scenario.LinkOption = None,
    seed: scenario.SeedsOption = None,
    check: scenario.CheckOption = False,
    plot: scenario.PlotOption = None,
    as_json: inputs.JsonOption = False,
) -> None:
    """Simulate an application in time slots, and compare routing policies.

    Response is from a source tuple's arrival to the last that follows from it. Cost is what a slot's tuples cross
    between machines, in links (1 between machines if there are none); × least relates it to the least at which any
    routing can carry the load (below 1: it does not). Backlog is what waits in all queues, queue the longest out-queue
    observed, waits the mean wait in one, Jain how equal they are (1: all the same). Left are source tuples not finished
    at the end: they count with their age. Narrow terminals show fewer columns, --json shows more.

    It follows POTUS's equations: tasks decide once per slot, tuples sent in one slot arrive in the next. Streams by key
    keep their grouping; their keys, a thousand, are equally likely.

    Example: penstock sim slotted word-count li-10 --routing shuffle --routing potus:v=3 --arrivals on-off:rate=4000
    """
    inputs.refuse_file(plot, inputs.PICTURES, application, cluster)
    case = scenario.find_scenario(
        application, cluster, inputs.chosen_parameters(parameter, parameters), plan, policy, seed
    )
    process = scenario.find_arrivals(arrivals)
    own = None if case.plan is None else case.plan.tuples.slot_ms
    length = own or DEFAULT_SLOT_MS if slot_ms is None else slot_ms
    sends = sending or (_planned_sending(case.plan) if link is not None else None)
    setting = SlottedApplication(
        case.application, case.cluster, case.placement, length, link, sends, _look(look_ahead, forecaster)
    )
    routings = _routings(setting, routing, case.plan, plan)
    with counting("simulating", len(routings) * len(case.seeds), quiet=as_json) as advance:
        found = simulate_application(
            setting,
            routings,
            arrivals=process,
            slots=slots or DEFAULT_SLOTS,
            warm_up=warm_up,
            seeds=case.seeds,
            check=check,
            on_result=lambda spec: advance(spec, 1),
        )
    report = SlottedReport(setting, found, case.placed_by, arrivals, list(case.seeds), _notes(setting, case.plan))
    _show(report, check, plot, as_json)


def _show(report: SlottedReport, check: bool, plot: Path | None, as_json: bool) -> None:
    """Print the results, and draw them if a file is named."""
    if plot is not None:
        plot_simulation(report.found, f"{report.setting.topology.name} on {report.setting.cluster.name}", plot)
    if as_json:
        print_report_json(report)
        return
    print_report(report)
    if check:
        console.print("checked: in every slot every tuple was in exactly one place", style="dim")
    if plot is not None:
        console.print(f"drew {plot}")


def _look(ahead: int | None, forecaster: str | None) -> LookAhead:
    if forecaster is None:
        return LookAhead(ahead or 0)
    make_forecaster(forecaster)
    if ahead == 0:
        problem = f"expected 1 slot or more with --forecaster {forecaster}, got 0; leave one out"
        raise InvalidInput("look_ahead", problem)
    return LookAhead(1 if ahead is None else ahead, forecaster)


def _routings(
    setting: SlottedApplication, requested: Sequence[str] | None, plan: Plan | None, file: Path | None
) -> list[str]:
    """Return the routings to compare: the requested ones, else the plan's, else all; `all` includes the plan's."""
    planned = None
    if plan is not None and (requested is None or "all" in requested):
        with inputs.naming(file or ""):
            planned = planned_routing(plan.tuples, setting.topology)
    wanted = list(requested or [planned or "all"])
    named = list(dict.fromkeys(spec for spec in [*([planned] if planned else []), *wanted] if spec != "all"))
    return all_routings(setting, named) if "all" in wanted else named


def _planned_sending(plan: Plan | None) -> str | None:
    sending = "" if plan is None else plan.tuples.sending
    return None if sending in ("", "none") else sending


def _notes(setting: SlottedApplication, plan: Plan | None) -> list[str]:
    """Return notes on ignored settings: a plan's sending without --link, streams that keep their grouping."""
    notes = []
    planned = _planned_sending(plan)
    if planned is not None and setting.sends is None:
        notes.append(f"the plan's sending, {planned}, has nothing to decide without --link TUPLES")
    fixed = [f"{one.label} ({one.grouping})" for one in setting.topology.streams if one.grouping not in SPREADING]
    if fixed and len(fixed) < len(setting.topology.streams):
        notes.append(f"streams that keep their grouping, whatever the routing: {', '.join(fixed)}")
    return notes


def print_report(report: SlottedReport) -> None:
    """Print the settings, a row per routing, and notes."""
    setting, found = report.setting, report.found
    console.print(
        f"[bold]{setting.topology.name}[/] ({setting.topology.task_count} tasks) on [bold]{setting.cluster.name}[/], "
        f"placed by {report.placed_by}",
        soft_wrap=True,
    )
    console.print(f"[dim]{_circumstances(report)}[/]\n", soft_wrap=True)
    columns = COLUMNS if console.width >= WIDE else NARROW_SENDING if setting.link is not None else NARROW
    rows = table("routing", *columns)
    for result in found.results:
        cells = _cells(found, result)
        rows.add_row(policy_cell(result.routing, result is found.best), *(cells[column] for column in columns))
    console.print(rows)
    if (text := warning(found.load)) is not None:
        console.print(f"[yellow]{text}[/]", soft_wrap=True)
    for note in report.all_notes:
        print_line(note, "dim")
    spread = "; ± one standard deviation over seeds" if len(report.seeds) > 1 else ""
    star = "★ lowest mean response time; within 1 % the lowest cost"
    console.print(f"\n{star}{spread}. Simulated, nothing ran.", style="dim", soft_wrap=True)


def _circumstances(report: SlottedReport) -> str:
    found, look, link = report.found, report.setting.look, report.setting.link
    parts = [f"{found.slots:,} slots of {found.slot_ms:g} ms, {found.warm_up:,} of them warm-up"]
    parts.append(f"{report.origin}: {number(found.load.offered_tps, 4)}/s offered")
    if link is not None:
        parts.append(f"at most {plural(link, 'tuple')} per slot leave a machine, sent by {found.sends}")
    if look.ahead:
        parts.append(f"sources look {plural(look.ahead, 'slot')} ahead ({look.forecaster})")
    if len(report.seeds) > 1:
        parts.append(f"means over {len(report.seeds)} seeds")
    return "; ".join(parts)


def _cells(found: RoutingComparison, result: RoutingResult) -> dict[str, str]:
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


def warning(load: SlottedLoad) -> str | None:
    """Describe an overload and its limit in one line; None: there is none."""
    offered = f"{number(load.offered_tps, 4)}/s offered"
    if load.phantom_tps:
        offered += f" and {number(load.phantom_tps, 4)}/s of phantoms"
    if load.exceeded:
        return (
            f"overload: {load.limit} is used up at {number(load.carried_tps, 4)}/s of the {offered}, whatever the "
            "routing: queues grow without bound"
        )
    if load.uneven:
        return (
            f"an even split uses up {load.even_limit} at {number(load.even_tps, 4)}/s of the {offered}: only routings "
            "that use the load can keep up"
        )
    return None


def print_report_json(report: SlottedReport) -> None:
    """Print the report as JSON."""
    setting, found = report.setting, report.found
    print_json(
        {
            "application": setting.topology.name,
            "cluster": setting.cluster.name,
            "placement": report.placed_by,
            "slots": found.slots,
            "slot_ms": found.slot_ms,
            "warm_up": found.warm_up,
            "seeds": list(report.seeds),
            "arrivals": report.origin,
            "asked_tps": found.asked_tps,
            "link": setting.link,
            "sending": found.sends,
            "look_ahead": setting.look.ahead,
            "forecaster": setting.look.forecaster if setting.look.ahead else None,
            "load": found.load._asdict(),
            "warning": warning(found.load),
            "notes": report.all_notes,
            "best": found.best.routing,
            "routings": [_record(found, result) for result in found.results],
        }
    )


def _record(found: RoutingComparison, result: RoutingResult) -> dict[str, Any]:
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


def plot_simulation(found: RoutingComparison, title: str, path: Path) -> None:
    """Draw the first seed of every routing, the best in orange and on top."""
    figure, (left, right) = panels(1, 2, 13, 4.6)
    colours = iter(COLOURS * len(found.results))
    for place, result in enumerate(found.results):
        best = result is found.best
        look: dict[str, Any] = {"color": BEST if best else next(colours), "linestyle": DASHES[place % len(DASHES)]}
        look |= {"linewidth": 1.8 if best else 1.2, "zorder": 3 if best else 2}
        outcome = result.outcomes[0]
        seconds, backlog = _coarse(outcome.series.backlog, found.slot_ms)
        left.plot(seconds, backlog, label=result.routing, **look)
        times, share = _exceeding(np.maximum(outcome.responses, SERVED_AHEAD) * found.slot_ms)
        right.step(times, share, where="post", label=result.routing, **look)
    slowest = [max(result.outcomes[0].response_p99, 1.0) for result in found.results]
    if max(slowest) > FAR * min(slowest):
        right.set_xscale("log")
    else:
        right.set_xlim(left=0.0)
    left.set_xlim(0.0, found.slots * found.slot_ms / 1e3)
    left.axvspan(0, found.warm_up * found.slot_ms / 1e3, color=GREY, alpha=0.12, linewidth=0)
    low, high = left.get_ylim()
    if high > FAR * max(low, 1.0):
        left.set_yscale("log")
    _finish(left, "time (s; grey: warm-up, not counted)", "backlog (tuples)")
    right.set_yscale("log")
    right.set_ylim(RAREST, 1.0)
    _finish(right, "response time (ms)", "share of source tuples that take longer (1 is all)")
    right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    figure.suptitle(f"{title}: {found.load.offered_tps:,.0f} tuples/s; lowest mean response in orange", fontsize=10)
    save_figure(figure, path)


def _coarse(series: np.ndarray, slot_ms: float) -> tuple[np.ndarray, np.ndarray]:
    """Average over intervals of equal length, for a readable line."""
    each = max(1, len(series) // POINTS)
    whole = len(series) // each * each
    middles = (np.arange(whole // each) + 0.5) * each * slot_ms / 1e3
    return middles, series[:whole].reshape(-1, each).mean(axis=1)


def _exceeding(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct times, and the share of all that exceeds each."""
    values, counts = np.unique(times, return_counts=True)
    longer = 1.0 - np.cumsum(counts) / max(1, counts.sum())
    return np.concatenate([values[:1], values]), np.concatenate([[1.0], longer])


def _finish(axis: Axes, across: str, up: str) -> None:
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    tidy(axis)
