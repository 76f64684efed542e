"""The results of a slotted simulation, as a table and as JSON."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.cli.formatting import plural
from penstock.cli.output import console, number, policy_cell, print_json, table
from penstock.simulation.slotted import LookAhead, RoutingComparison, RoutingResult, SlottedApplication, SlottedLoad

WIDE = 110  # columns of a terminal with room for everything
COLUMNS = (
    "response\nms", "p99\nms", "slots", "cost\n/slot", "× least", "backlog", "queue", "waits\nms", "Jain", "left",
)  # fmt: skip
NARROW = ("response\nms", "p99\nms", "cost\n/slot", "× least", "backlog", "left")
NARROW_SENDING = ("response\nms", "p99\nms", "backlog", "queue", "waits\nms", "Jain", "left")
OFF = 0.03  # relative difference of the actual and the requested rate that is reported


class SlottedReport(NamedTuple):
    """The settings of a simulation, and its results."""

    setting: SlottedApplication
    found: RoutingComparison
    placed_by: str
    arrivals: str | None  # as the user wrote it
    look: LookAhead
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
        console.print(note, style="dim", markup=False, soft_wrap=True)
    spread = "; ± one standard deviation over seeds" if len(report.seeds) > 1 else ""
    star = "★ lowest mean response time; within 1 % the lowest cost"
    console.print(f"\n{star}{spread}. Simulated, nothing ran.", style="dim", soft_wrap=True)


def _circumstances(report: SlottedReport) -> str:
    found, look, link = report.found, report.look, report.setting.link
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
            "look_ahead": report.look.ahead,
            "forecaster": report.look.forecaster if report.look.ahead else None,
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
