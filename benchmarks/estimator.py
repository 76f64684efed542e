"""The batched flow estimator against the same algorithm in plain Python.

Grid: 600 pairs of task graph and slot graph (those of ../shared/data/tata if it exists, otherwise generated with the
same statistics), 100 random placements each; both sides estimate the same placements, alternating, 5 times.
"""

import json
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.plain_estimator import PlainCase, estimate
from penstock.estimate.evaluator import Evaluator
from penstock.estimate.flow import TATA
from penstock.estimate.flow_kernels import estimate_flows
from penstock.model.cluster import Cluster
from penstock.model.formats.tata import read_slot_graphs, read_task_graphs
from penstock.model.topology import Application
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster

PAIRS = 600
PLACEMENTS = 100
REPEATS = 5
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "tata"


def pairs() -> list[tuple[Application, Cluster]]:
    """Return the pairs to be estimated."""
    if not SHARED.is_dir():
        return [(application(f"random-job:seed={s}"), cluster(f"random-slots:seed={s}")) for s in range(PAIRS)]
    cases = json.loads((SHARED / "estimator_cases.json").read_text())["cases"]
    graphs = read_task_graphs(SHARED / "task_graphs.json", "train")
    slots = read_slot_graphs(SHARED / "slot_graphs.json")
    return [(graphs[case["task_graph"]], slots[case["slot_graph"]]) for case in cases]


def plain(evaluator: Evaluator) -> PlainCase:
    """Return the input of the plain version."""
    tasks, edges, slots = evaluator.tasks, evaluator.edges, evaluator.slots
    return PlainCase(
        cpu=tasks.cpu.tolist(),
        down=[edges.target[edges.start[t] : edges.start[t + 1]].tolist() for t in range(tasks.number)],
        up=[edges.source[edges.target == t].tolist() for t in range(tasks.number)],
        slot_cpu=slots.cpu.tolist(),
        process=slots.process.tolist(),
        host=slots.host.tolist(),
        delay_ms=slots.delay_ms.tolist(),
    )


def main() -> None:
    rng = np.random.default_rng(0)
    evaluators = [Evaluator(app, machines, TATA) for app, machines in pairs()]
    placed = [rng.integers(0, e.slots.number, (PLACEMENTS, e.tasks.number), dtype=np.int32) for e in evaluators]
    slow_cases = [plain(evaluator) for evaluator in evaluators]
    nets = [evaluator.flow_net for evaluator in evaluators]
    estimate_flows(nets[0], placed[0])  # compile
    ratios, slow_times, fast_times = [], [], []
    for _ in range(REPEATS):
        started = perf_counter()
        fast = [estimate_flows(net, rows) for net, rows in zip(nets, placed, strict=True)]
        between = perf_counter()
        slow = [[estimate(c, row) for row in rows.tolist()] for c, rows in zip(slow_cases, placed, strict=True)]
        ended = perf_counter()
        fast_times.append(between - started)
        slow_times.append(ended - between)
        ratios.append(slow_times[-1] / fast_times[-1])
    worst = max(float(np.abs(np.array(s)[:, 0] / f[0] - 1).max()) for s, f in zip(slow, fast, strict=True))
    count = len(nets) * PLACEMENTS
    print(f"estimates a run           {count:,} (largest difference between the sides {worst:.1e})")
    print(f"plain Python              {np.median(slow_times) / count * 1e6:8.1f} µs each")
    print(f"batched kernel            {np.median(fast_times) / count * 1e6:8.2f} µs each")
    spread = f"{min(ratios):.0f}-{max(ratios):.0f} over {REPEATS} runs"
    print(f"ratio                     {np.median(ratios):8.0f}×  (spread {spread})")


if __name__ == "__main__":
    main()
