"""`penstock sim forecast`: compare forecasters on known arrivals."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.markup import escape

from penstock.cli.formatting import plural
from penstock.cli.inputs import PICTURES, JsonOption, completing, refuse_file
from penstock.cli.output import console, duration, number, policy_cell, print_json, print_line, table
from penstock.cli.plots import BEST, GREY, panels, save_figure, tidy
from penstock.cli.progress import counting
from penstock.cli.sim.series import Series, find_series
from penstock.experiments.pictures import Axes
from penstock.model.kernel import preparing
from penstock.policies.forecast.api import Counts, Forecaster, MissingExtra
from penstock.policies.forecast.backtest import Score, judge, warm_up
from penstock.policies.registry import PolicyKind, names
from penstock.policies.registry import forecaster as make

STRETCH = 80  # slots that are drawn
COLOURS = ("#4878a8", "#5b9a68", "#8a6bb1", "#b8963e", "#4fa6ad", "#a85c7f", "#6b6b8f", "#8c6d4f")
FAR = 30.0  # ratio of errors above which an axis is logarithmic


class Backtest(NamedTuple):
    """The forecasts of a forecaster for a series, and their score."""

    forecaster: str
    honest: bool
    forecasts: Counts
    score: Score
    seconds: float


def forecast(
    trace: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...",
            help="Recorded arrivals: a file of counts, one per line; CSV with a header timestamp,value "
            "or timestamp,…; or seconds and bytes, one packet per line. FILE:rate=8 scales it. Or "
            "a process: NAME:PARAMETER=VALUE.",
        ),
    ],
    forecaster: Annotated[
        list[str] | None,
        typer.Option(
            help="Forecaster, NAME or NAME:PARAMETER=VALUE; repeatable; all: all others; default: all.",
            autocompletion=completing(*names(PolicyKind.FORECAST), "all"),
        ),
    ] = None,
    lead: Annotated[int, typer.Option(help="Slots to forecast ahead.", min=1)] = 1,
    slots: Annotated[
        int | None, typer.Option(help="Maximum slots; default: all of a trace, 10,000 of a process.", min=2)
    ] = None,
    slot: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Length of a slot; default: the trace's interval, or the time of about 4 tuples."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of processes and forecasters.", min=0)] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw traces, forecasts and errors (.png, .svg, .pdf).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare forecasters on known arrivals.

    The error is forecast minus arrivals, in tuples per slot: MSE is its mean square, bias its mean. Phantoms were
    forecast and did not arrive, misses arrived and were not forecast, both as a share of the arrivals. Forecasters see
    only earlier slots; the oracles among them show what a perfect forecast, or phantoms alone, would achieve. The
    first tenth of the slots, at most 1,000, is not judged.

    Example: penstock sim forecast diurnal:rate=8,period=600 --forecaster kalman --forecaster ewma:alpha=0.4
    """
    refuse_file(plot, PICTURES, *trace)
    names, left_out = chosen_forecasters(forecaster or ["all"])
    found = [find_series(text, slot, slots, seed) for text in trace]
    tried = list(_with_progress(found, names, lead, seed, quiet=as_json))
    results = [tried[i * len(names) : (i + 1) * len(names)] for i in range(len(found))]
    if plot is not None:
        plot_forecasts(list(zip(found, results, strict=True)), lead, plot)
    if as_json:
        _print_json(found, results, lead, seed)
        return
    for series, rows in zip(found, results, strict=True):
        _print(series, rows, lead)
    console.print("★ lowest squared error. Oracles, which know the future, are dim and have no star.", style="dim")
    for note in left_out:
        print_line(f"{note}; left out", "dim")
    if plot is not None:
        console.print(f"drew {plot}")


def chosen_forecasters(specs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the requested forecasters without duplicates, and why some of `all` are unavailable."""
    named = list(dict.fromkeys(spec for spec in specs if spec != "all"))
    for spec in named:
        make(spec)
    if "all" not in specs:
        return named, []
    chosen, left_out = [], []
    for name in names(PolicyKind.FORECAST):
        own = [spec for spec in named if spec.partition(":")[0] == name]
        try:
            make(name)
        except MissingExtra as missing:
            left_out.append(str(missing))
        else:
            chosen += own or [name]
    return chosen, left_out


def best_of(rows: Sequence[Backtest]) -> Backtest | None:
    """Return the forecaster with the lowest squared error, oracles excluded."""
    return min((row for row in rows if row.honest), key=lambda row: row.score.mse, default=None)


def _with_progress(
    found: Sequence[Series], names: Sequence[str], lead: int, seed: int, quiet: bool
) -> Iterator[Backtest]:
    with counting("forecasting", len(found) * len(names), quiet) as advance:
        for series in found:
            for name in names:
                advance(f"{series.name}: {name}", 0)
                yield _try(series, name, lead, seed)
                advance(f"{series.name}: {name}", 1)


def _try(series: Series, spec: str, lead: int, seed: int) -> Backtest:
    warm_up(len(series.counts), lead)  # rejects a series that is too short
    chosen = _with_clock(make(spec), spec, series.slot)
    with preparing() as compiling:
        began = time.perf_counter()
        forecasts = chosen.forecast(
            series.counts, lead, np.random.default_rng([seed, 1])
        )  # another stream than that of the series
        seconds = time.perf_counter() - began - compiling.seconds
    return Backtest(spec, chosen.honest, forecasts, judge(forecasts, series.counts, lead), seconds)


def _with_clock(chosen: Forecaster, spec: str, slot: float) -> Forecaster:
    """Set the slot length of a forecaster that uses the time of day, unless the user has set it."""
    knows: Any = chosen
    return replace(knows, slot=slot) if hasattr(chosen, "slot") and "slot=" not in spec else chosen


def _print(series: Series, rows: Sequence[Backtest], lead: int) -> None:
    counts = series.counts
    console.print(f"[bold]{escape(series.name)}[/], {plural(lead, 'slot')} ahead", soft_wrap=True)
    console.print(
        f"[dim]{plural(len(counts), 'slot')} of {duration(series.slot)}; tuples per slot: "
        f"mean {number(counts.mean())}, variance {number(counts.var())}, maximum {counts.max():,}[/]",
        soft_wrap=True,
    )
    if series.interpolated:
        note = f"it counts by {duration(series.interval)}; within that, arrivals are assumed to be even"
        console.print(f"[yellow]{note}, which is easy to forecast; leave the slot out[/]", soft_wrap=True)
    console.print()
    made = table("forecaster", "MSE", "bias", "mean abs.\nerror", "phantoms", "misses", "took")
    best = best_of(rows)
    for row in rows:
        score = row.score
        made.add_row(
            policy_cell(row.forecaster, row is best),
            number(score.mse, 4),
            f"{round(score.bias, 2) + 0.0:+.2f}",  # not -0.00
            number(score.mae),
            _share(score.phantom),
            _share(score.missed),
            duration(row.seconds),
            style=None if row.honest else "dim",
        )
    console.print(made)
    console.print()


def _share(value: float) -> str:
    return "-" if value != value else f"{value:.1%}"


def _print_json(found: Sequence[Series], results: Sequence[Sequence[Backtest]], lead: int, seed: int) -> None:
    print_json(
        {
            "lead": lead,
            "seed": seed,
            "traces": [
                {
                    "trace": series.name,
                    "slots": len(series.counts),
                    "slot_s": series.slot,
                    "interval_s": series.interval or None,
                    "mean": float(series.counts.mean()),
                    "variance": float(series.counts.var()),
                    "judged_from": warm_up(len(series.counts), lead),
                    "best": best.forecaster if (best := best_of(rows)) else None,
                    "forecasters": [
                        {
                            "forecaster": row.forecaster,
                            "honest": row.honest,
                            **row.score._asdict(),
                            "seconds": row.seconds,
                        }
                        for row in rows
                    ],
                }
                for series, rows in zip(found, results, strict=True)
            ],
        }
    )


def plot_forecasts(tried: Sequence[tuple[Series, Sequence[Backtest]]], lead: int, path: Path) -> None:
    """Draw a row per trace: arrivals with the forecasts, oracles excluded, and the squared errors of all."""
    bars = max(len(rows) for _, rows in tried)
    height = max(2.6, 0.9 + 0.24 * bars)
    figure, axes = panels(len(tried), 2, 12, 0.5 + height * len(tried), width_ratios=(5, 2), squeeze=False)
    for (left, right), (series, rows) in zip(axes, tried, strict=True):
        colour = _colours(rows)
        _draw_stretch(left, series, rows, colour, lead)
        _draw_errors(right, rows, colour)
    figure.suptitle(
        f"Forecasts {plural(lead, 'slot')} ahead: arrivals in grey; the lowest squared error in orange", fontsize=10
    )
    save_figure(figure, path)


def _colours(rows: Sequence[Backtest]) -> dict[str, str]:
    """Return a colour for each forecaster with nonzero forecasts, the same in every row; the best has its own."""
    best = best_of(rows)
    active = [row for row in rows if row.honest and row.forecasts.any()]
    chosen = {row.forecaster: COLOURS[i % len(COLOURS)] for i, row in enumerate(active)}
    return {row.forecaster: BEST if row is best else chosen.get(row.forecaster, GREY) for row in rows}


def _draw_stretch(axis: Axes, series: Series, rows: Sequence[Backtest], colour: Mapping[str, str], lead: int) -> None:
    """Draw the middle of the judged slots: arrivals as bars, forecasts as lines."""
    first = warm_up(len(series.counts), lead)
    begin = max(first, (first + len(series.counts) - STRETCH) // 2)
    slots = np.arange(begin, min(begin + STRETCH, len(series.counts)))
    axis.bar(slots, series.counts[slots], width=0.9, color=GREY, alpha=0.35)
    for row in rows:
        if colour[row.forecaster] != GREY:
            top = colour[row.forecaster] == BEST
            axis.plot(
                slots,
                row.forecasts[slots],
                color=colour[row.forecaster],
                linewidth=1.9 if top else 1.1,
                zorder=3 if top else 2,
            )
    axis.set_xlim(slots[0] - 0.6, slots[-1] + 0.6)
    axis.set_ylim(bottom=0)
    axis.locator_params(axis="y", integer=True)
    axis.set_title(series.name, fontsize=9, loc="left")
    axis.set_xlabel(f"slot, of {duration(series.slot)}: {len(slots)} of {len(series.counts):,}")
    axis.set_ylabel("tuples a slot")
    tidy(axis, "y")


def _draw_errors(axis: Axes, rows: Sequence[Backtest], colour: Mapping[str, str]) -> None:
    """Draw the squared errors as bars, in the colours of the lines, as their legend."""
    errors = [row.score.mse for row in rows]
    some = [error for error in errors if error > 0]
    logarithmic = bool(some) and max(some) > FAR * min(some)
    places = np.arange(len(rows))
    axis.barh(places, errors, color=[colour[row.forecaster] for row in rows], height=0.7)
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xlim(left=min(some) / 2, right=max(some) * 4)
    else:
        axis.set_xlim(0, 1.25 * max(some, default=1.0))
    for place, error in zip(places, errors, strict=True):
        axis.annotate(
            number(error),
            (max(error, axis.get_xlim()[0]), place),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axis.set_yticks(places, [row.forecaster.replace(":", "\n") for row in rows], fontsize=8)
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_color(colour[row.forecaster])
    axis.invert_yaxis()
    axis.set_xlabel("mean squared error" + (", logarithmic" if logarithmic else ""))
    tidy(axis, "x")
