"""The picture of a twin's simulation: the distribution of latencies, and the load of machines."""

from pathlib import Path

import numpy as np
from matplotlib import pyplot

from penstock.cli.plots import BAR, BEST, GREY, save_figure
from penstock.cli.sim.scenario import Scenario
from penstock.cli.sim.twin import FULL
from penstock.model.taskgraph import Floats
from penstock.simulation.twin import TwinResult

POINTS = 2000  # of a line; more are invisible
RAREST = 1e-4  # share of tuples down to which the distribution is drawn, if there are enough


def plot_events(found: TwinResult, case: Scenario, path: Path) -> None:
    """Draw the latencies of every seed, and the share of each machine's cores in use."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.4))
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
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(linewidth=0.4, alpha=0.6)
        axis.set_axisbelow(True)
    title = f"{case.application.name} on {case.cluster.name}, {found.load.offered_tps:,.0f} tuples/s: simulated"
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path)


def longer(latencies: Floats) -> tuple[Floats, Floats]:
    """Return times, and the share of tuples that take longer than each, down to one tuple."""
    shares = np.geomspace(1.0, max(RAREST, 1.0 / len(latencies)), POINTS)
    return np.quantile(latencies, 1.0 - shares), shares
