"""Windows of an imaginary run whose latencies follow a known law, written as the pipeline's tables."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.features import EDGE_WINDOW, LOAD_WINDOW, SHARE_WINDOW, TASK_WINDOW

WIDTHS = {"in": 2, "split": 3, "out": 2}
MACHINES = ("m0", "m1", "m2")
MEMORY_MB = {"m0": 1024.0, "m1": 2048.0, "m2": 4096.0}
CPU = {"in": 0.0, "split": 0.002, "out": 0.001}  # core-seconds per tuple
RATE = 200.0
DONE = {"latency": 0.01, "complete": True}


def write_tables(folder: Path, seed: int, places: int = 10, windows: int = 3, noise: float = 0.02) -> Path:
    """Draw placements, each kept for some windows; both times grow with the tuples on the machine where they end.

    Machines have one core of speed 1 each, and unequal memory.
    """
    rng = np.random.default_rng(seed)
    tasks, edges, loads, tuples = [], [], [], []
    names = [f"{component}[{n}]" for component, width in WIDTHS.items() for n in range(width)]
    load = {name: RATE / WIDTHS[component_of(name)] for name in names}
    for place in range(places):
        machine = {name: MACHINES[rng.integers(len(MACHINES))] for name in names}
        here = {m: [name for name in names if machine[name] == m] for m in MACHINES}
        busy = {m: sum(load[n] * CPU[component_of(n)] for n in here[m]) for m in MACHINES}
        total = {m: sum(load[n] for n in here[m]) for m in MACHINES}
        for window in range(place * windows, (place + 1) * windows):
            base: dict[str, object] = {"run": "imaginary-20250101-000000", "window": window}
            for name in names:
                m = machine[name]
                loads.append(
                    base
                    | {"task": name, "machine": m, "task_load": load[name], "used_cpu": busy[m]}
                    | {"colocated": len(here[m]) - 1.0}
                )
                if component_of(name) != "in":
                    label = CPU[component_of(name)] * (1 + total[m] / RATE) * rng.lognormal(0, noise)
                    tasks.append(
                        base
                        | {"component": component_of(name), "task": name, "machine": m, "machine_cpu": 1.0}
                        | {"machine_memory": MEMORY_MB[m], "task_load": load[name], "machine_load": total[m]}
                        | {"used_cpu": busy[m]}
                        | {"colocated": len(here[m]) - 1.0, "count": 100, "processing_s": label}
                    )
            for source, target in (("in", "split"), ("split", "out")):
                for a in range(WIDTHS[source]):
                    for b in range(WIDTHS[target]):
                        ends = f"{source}[{a}]", f"{target}[{b}]"
                        ms = machine[ends[0]], machine[ends[1]]
                        label = (1e-4 if ms[0] == ms[1] else 1e-3) * (1 + total[ms[1]] / RATE) * rng.lognormal(0, noise)
                        row = base | {"stream": f"{source}->{target}", "count": 50}
                        for end, name, m in zip(("source", "target"), ends, ms, strict=True):
                            row |= {end: name, f"{end}_machine": m, f"{end}_cpu": 1.0, f"{end}_load": load[name]}
                            row |= {f"{end}_memory": MEMORY_MB[m], f"{end}_machine_load": total[m]}
                        row |= {"source_used_cpu": busy[ms[0]]}
                        edges.append(row | {"same_machine": float(ms[0] == ms[1]), "transfer_s": label})
            tuples.append({"run": base["run"], "source": "in[0]", "due": 30.0 * window} | DONE)
    shares = [{name: row["count" if name == "tuples" else name] for name in SHARE_WINDOW} for row in edges]
    for name, rows, columns in (
        ("task_windows", tasks, TASK_WINDOW),
        ("edge_windows", edges, EDGE_WINDOW),
        ("features", loads, LOAD_WINDOW),
        ("shares", shares, SHARE_WINDOW),
    ):
        assert set(rows[0]) == set(columns)
        _write(folder / name, rows)
    _write(folder / "tuples", tuples)
    return folder


def component_of(task: str) -> str:
    return task.partition("[")[0]


def _write(folder: Path, rows: list[dict[str, object]]) -> None:
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")
