"""Five routings with two sendings, live: steady and bursty arrivals at half, four fifths and nearly all of the maximum.

It determines the default: `default_policies`.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.live_cases import Report, silent
from penstock.experiments.pictures import Axes, Picture, bars_beside
from penstock.papers.hone.live.episodes import BURSTY, STEADY, Episodes, Lengths
from penstock.papers.hone.live.measures import run_and_measure
from penstock.papers.hone.live.ratios import (
    ALLOWED,
    MEASURES,
    WANTED,
    Ratio,
    against,
    by_place,
    judge,
    place_text,
    to_best,
)
from penstock.papers.hone.live.settings import one_slow_machine
from penstock.papers.hone.live.trial import PLAIN, Choice, Trial
from penstock.papers.hone.tables import finish

LOADS = (0.5, 0.8, 0.95)  # of the maximum rate
PLUS = "potus-plus:v=240"
"""A unit of cost is the transfer to another machine, some 20 slots of 1 ms; potus-plus assumes that each of the
three sources sends four times its own tuples, so its v counts a twelfth."""
ROUTINGS = ("round-robin", "local-first", "least-loaded", "potus", PLUS)
SENDINGS = ("fifo", "longest-backlog-first")
CHOICES = tuple(Choice(routing, sending) for routing in ROUTINGS for sending in SENDINGS)
FULL, QUICK = Lengths(0.5, 2.0, 0.25, 0.25), Lengths(0.5, 1.5, 0.25, 0.25)
ROUNDS, QUICK_ROUNDS = 10, 2
SEEDS = (2, 3)  # of arrivals, one run each; the default was selected on seeds 0 and 1
COLOURS = dict(zip(ROUTINGS, ("#888888", "#5b9a68", "#4878a8", "#8a6bb1", "#d1603d"), strict=True))
TRUE = 0.25  # maximum share of checks in an episode at which its emulation lags
BUSY = 0.05  # tolerance between the busiest task and the estimator


def default_policies(arrivals: str, measure: str) -> Choice:
    """Return the default, given the kind of arrivals and the measure to minimise.

    With steady arrivals, longest-first sending minimises the mean: components take turns at the card, and sentences do
    not wait behind words. In bursts, and for the tail, the oldest tuple goes first, so that sentences are completed one
    after the other.
    """
    return Choice(PLUS, SENDINGS[1] if arrivals == STEADY and measure == MEASURES[0] else SENDINGS[0])


def _cases(quick: bool) -> Sequence[Case]:
    lengths, rounds = (QUICK, QUICK_ROUNDS) if quick else (FULL, ROUNDS)
    loads = (0.8,) if quick else LOADS
    return [
        {"arrivals": kind, "load": load, "settle_s": lengths.settle, "cell_s": lengths.counted, "rounds": rounds,
         "seed": seed}
        for kind in (STEADY, BURSTY)
        for load in loads
        for seed in (SEEDS[:1] if quick else SEEDS)
    ]  # fmt: skip


def run_grid(case: Case, report: Report = silent) -> Sequence[Row]:
    """Run one kind of arrivals at one load and return one row per choice and round."""
    setting = one_slow_machine()
    lengths = Lengths(float(case["settle_s"]), float(case["cell_s"]), FULL.tail, FULL.pause)
    load_tps = float(case["load"]) * setting.maximum_tps
    episodes = Episodes(
        str(case["arrivals"]), load_tps, len(CHOICES), int(case["rounds"]), setting.tasks[0], lengths, int(case["seed"])
    )
    place = place_text(str(case["arrivals"]), float(case["load"]))
    return run_and_measure(Trial(setting, episodes, CHOICES), lambda what: report(f"{place}, {what}"))


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(11, 7)
    kinds = list(dict.fromkeys(rows["arrivals"]))
    axes = picture.subplots(len(kinds), len(MEASURES), sharey="row", squeeze=False)
    for line, kind in zip(axes, kinds, strict=True):
        for axis, measure in zip(line, MEASURES, strict=True):
            _draw_place(axis, rows[rows["arrivals"] == kind], measure)
            what = measure.removesuffix("_ms")
            finish(axis, "share of the maximum rate", f"{what} latency / best", f"{kind} arrivals, {what}", True)
    axes[0][0].legend(frameon=False, fontsize=7, ncols=2)


def _draw_place(axis: Axes, rows: pd.DataFrame, measure: str) -> None:
    loads = sorted(rows["load"].unique())
    found = [to_best(rows[rows["load"] == load], measure) for load in loads]
    for number, choice in enumerate(CHOICES):
        ratios = [one[choice] for one in found]
        error = [
            [one.ratio - min(one.low, one.ratio) for one in ratios],
            [max(one.high, one.ratio) - one.ratio for one in ratios],
        ]
        look = {"color": COLOURS[choice.routing], "hatch": "" if choice.sending == "fifo" else "////"}
        look |= {"edgecolor": "white", "label": choice.text.replace("longest-backlog-first", "LBF")}
        bars_beside(axis, number, len(CHOICES), [one.ratio for one in ratios], yerr=error, linewidth=0, **look)
    axis.set_xticks(range(len(loads)), [f"{100 * load:.0f} %" for load in loads])
    axis.axhline(1.0, color="black", linewidth=0.6)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    return [
        _default(rows),
        *(_helps(f"routing by {name}", _by_routing(rows, name), REASONS.get(name, "")) for name in ROUTINGS[1:]),
        _helps("sending the longest backlog first", _by_sending(rows), ORDER),
        _plus(rows),
        _sustained(rows),
        _true(rows),
    ]


def _default(rows: pd.DataFrame) -> Claim:
    judged = judge(rows, default_policies)
    within = [one for one in judged if one.within]
    rest = [f"{one.place} {one.ratio.text}, best {one.best.text}" for one in judged if not one.within]
    which = f"{PLUS}; {SENDINGS[1]} for the mean of steady arrivals, else {SENDINGS[0]}"
    return Claim(
        f"ours: the default ({which}) takes at most {ALLOWED:g} times the best, mean and p99",
        f"asked: the upper limit in ≥ {WANTED:.0%} of the places",
        f"in {len(within)} of {len(judged)}; ratio {_range([one.ratio for one in judged])}",
        "95 % limits by a paired bootstrap over rounds, the best chosen again in every draw; on arrivals that it "
        "was not chosen by",
        len(within) >= WANTED * len(judged),
        f"the rest: {'; '.join(rest)}" if rest else "",
    )


REASONS = {"least-loaded": "at half of the maximum rate most queues are empty, so that there is nothing to choose by. "}
ORDER = "a card that never idles has the same mean delay in every order: what one task gains another loses. "
Found = Mapping[str, Ratio]
"""By place and the other choice."""


def _by_routing(rows: pd.DataFrame, routing: str) -> Found:
    return {
        f"{place_text(arrivals, load)} {measure.removesuffix('_ms')}": against(
            own, measure, Choice(routing, PLAIN.sending), PLAIN
        )
        for arrivals, load, own in by_place(rows)
        for measure in MEASURES
    }


def _by_sending(rows: pd.DataFrame) -> Found:
    return {
        f"{place_text(arrivals, load)} {measure.removesuffix('_ms')} by {routing}": against(
            own, measure, Choice(routing, SENDINGS[1]), Choice(routing, SENDINGS[0])
        )
        for arrivals, load, own in by_place(rows)
        for measure in MEASURES
        for routing in ROUTINGS
    }


def _helps(what: str, found: Found, reason: str) -> Claim:
    not_there = [place for place, one in found.items() if one.high >= 1.0]
    worst = max(found, key=lambda place: found[place].ratio)
    base = "fifo" if what.startswith("sending") else PLAIN.text
    return Claim(
        f"ours: {what} is faster than {base}",
        "not compared",
        f"in {len(found) - len(not_there)} of {len(found)}; ratio {_range(list(found.values()))}",
        "upper limit < 1 in every place, mean and p99",
        not not_there,
        f"{reason}no help: {_listed(not_there)}; at worst {found[worst].text} ({worst})" if not_there else "",
    )


def _plus(rows: pd.DataFrame) -> Claim:
    found = {
        f"{place_text(arrivals, load)} {measure.removesuffix('_ms')} against {routing} + {sending}": against(
            own, measure, Choice(PLUS, sending), Choice(routing, sending)
        )
        for arrivals, load, own in by_place(rows)
        for measure in MEASURES
        for routing in ROUTINGS[:-1]
        for sending in SENDINGS
    }
    lost = [f"{place} {one.text}" for place, one in found.items() if one.low > 1.0]
    return Claim(
        f"ours: no routing is faster than {PLUS}, by either sending",
        "not compared",
        f"none in {len(found) - len(lost)} of {len(found)}; ratio {_range(list(found.values()))}",
        "lower limit ≤ 1 against each, mean and p99",
        not lost,
        f"faster: {_listed(lost)}" if lost else "",
    )


def _sustained(rows: pd.DataFrame) -> Claim:
    """Compare the utilisation of the busiest task, if tuples are split evenly, with the intended load."""
    plain = rows[(rows["routing"] == PLAIN.routing) & (rows["sending"] == PLAIN.sending)]
    busy = plain.groupby("load")["busiest"].mean()
    return Claim(
        "ours: the maximum rate is what an even split just sustains",
        "by the estimator",
        ", ".join(f"busiest task {share:.0%} busy at {load:.0%}" for load, share in busy.items()),
        f"± {BUSY:.0%} of the load, mean over rounds of {PLAIN.text}",
        all(abs(share - load) <= BUSY for load, share in busy.items()),
    )


def _true(rows: pd.DataFrame) -> Claim:
    late = rows[rows["late"] > TRUE]
    lost = int(rows["unfinished"].sum())
    return Claim(
        "ours: the emulation was true, every tuple was followed to its end, nothing was left from before",
        "asked",
        f"late in {len(late)} of {len(rows)} episodes, {lost} tuples of {int(rows['tuples'].sum()):,} unfinished, "
        f"tuples left from before in {int((rows['carried'] > 0).sum())}",
        f"events ≤ 2 ms or a tenth of a service late (p99) at ≥ {1 - TRUE:.0%} of the looks, each episode",
        late.empty and lost == 0 and not rows["carried"].any(),
        "" if late.empty else "the host had other work to do",
    )


def _range(ratios: Sequence[Ratio]) -> str:
    values = [one.ratio for one in ratios]
    return f"{min(values):.2f} to {max(values):.2f}"


def _listed(places: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(places[:most])
    return shown if len(places) <= most else f"{shown} and {len(places) - most} more"


LIVE = Figure(
    "live", "Live: routing and sending on one slow machine of three", _cases, run_grid, _draw, _claims, live=True
)
