"""A synthetic run: random tuple trees with known times, recorded on workers' clocks with offset and drift.

The application is lines → split → count → store: a line is split into words, each is counted, some counts are stored.
The truth is on the controller's clock; what is written is on the workers'.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.model.telemetry import Record, arrow_schema

Row = dict[str, Any]
TASKS = ("lines[0]", "split[0]", "split[1]", "count[0]", "count[1]", "count[2]", "store[0]")
WORKERS = ("m0", "m1", "m2")
RATE_TPS = 100  # of lines; one in five is sampled
SAMPLED = 5
SERVICE_S = {"split": 0.001, "count": 0.002, "store": 0.0005}
SLOW = "count[2]"  # a straggler
FIRST_S = 0.01  # when the first phase starts
CHANGE_S = 10.0  # when the second phase starts
END_S = 20.0
BUSY = {"m0": 0.25, "m1": 0.5, "m2": 0.75}
CAPACITY = {"m0": (2.0, 1024.0), "m1": (4.0, 2048.0), "m2": (6.0, 4096.0)}  # cpu, memory in MB
MEMORY_MB = {"m0": 100.0, "m1": 200.0, "m2": 400.0}  # at first; it grows by one per second
LAGS_S = (0.002, 0.25)  # of the loops in each phase, at most


class Segment(NamedTuple):
    """A clock record, valid from `at` on."""

    at: float
    offset: float
    drift: float

    def ahead(self, time: float) -> float:
        return self.offset + self.drift * (time - self.at)


class Clock:
    """A worker's clock, whose drift changes now and then."""

    def __init__(self, offset: float, drifts: tuple[float, ...], every: float) -> None:
        self.segments = [Segment(offset, offset, drifts[0])]
        for drift in drifts[1:]:
            last = self.segments[-1]
            self.segments.append(Segment(last.at + every, last.ahead(last.at + every), drift))

    def read(self, true: float) -> float:
        """Return what the clock shows at a time of the controller's."""
        for position, segment in reversed(list(enumerate(self.segments))):
            shown = (true + segment.offset - segment.drift * segment.at) / (1 - segment.drift)
            if shown >= segment.at or position == 0:
                return shown
        raise AssertionError("the first segment has no beginning")


@dataclass
class Synthetic:
    """The truth of a run, and its records."""

    seed: int = 0
    settle_s: float = 2.0
    hops: list[Row] = field(default_factory=list)
    roots: list[Row] = field(default_factory=list)
    records: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.clocks = {
            "m0": Clock(100.0, (2e-5, -1e-5, 3e-5), 6.0),
            "m1": Clock(-50.0, (-4e-5,), 6.0),
        }  # m2 shares the controller's
        self.placements = [{task: self.random.choice(WORKERS) for task in TASKS}, dict.fromkeys(TASKS, "m1")]
        self.next_id = 1
        for number in range(int(END_S * RATE_TPS / SAMPLED)):
            self._root(number * SAMPLED / RATE_TPS + self.random.uniform(0, FIRST_S))
        self._tell()

    def placed(self, task: str, when: float) -> str:
        return self.placements[when >= CHANGE_S][task]

    def _id(self) -> int:
        self.next_id += 1
        return self.next_id * 0x1F3D5B79

    def _root(self, due: float) -> None:
        root: Row = {"root": self._id(), "due": due, "emitted": due + self.random.uniform(0, 0.001), "task": "lines[0]"}
        root["id"] = root["root"]
        self.roots.append(root)
        split = self._hop(root, root["id"], "lines[0]", f"split[{self.random.randrange(2)}]", root["emitted"])
        for _ in range(self.random.randint(1, 4)):
            emitted = self.random.uniform(split["started"], split["finished"])
            count = self._hop(root, split["id"], split["task"], f"count[{self.random.randrange(3)}]", emitted)
            if self.random.random() < 0.5:
                self._hop(root, count["id"], count["task"], "store[0]", count["finished"])

    def _hop(self, root: Row, parent: int, source: str, task: str, emitted: float) -> Row:
        component = task.partition("[")[0]
        here, there = self.placed(task, root["due"]), self.placed(source, root["due"])
        hop: Row = {"root": root["root"], "id": self._id(), "parent": parent, "source": source, "task": task}
        hop["stream"] = f"{source.partition('[')[0]}->{component}"
        hop |= {"worker": here, "source_worker": there, "bytes": 0 if here == there else self.random.randint(20, 90)}
        spans = (0, 2e-4), (1e-5, 4e-5) if here == there else (1e-4, 4e-4), (0, 0.004)
        waited = [self.random.uniform(*span) for span in spans]
        waited.append(SERVICE_S[component] * self.random.expovariate(1.0) * (8 if task == SLOW else 1))
        times = [emitted]
        for span in waited:
            times.append(times[-1] + span)
        hop |= dict(zip(("emitted", "sent", "arrived", "started", "finished"), times, strict=True))
        self.hops.append(hop)
        return hop

    def shown(self, worker: str, true: float) -> float:
        return self.clocks[worker].read(true) if worker in self.clocks else true

    def _tell(self) -> None:
        for root in self.roots:
            worker = self.placed("lines[0]", root["due"])
            times = {name: self.shown(worker, root[name]) for name in ("due", "emitted")}
            self.add("root", worker, at=times["emitted"], **(root | times))
        ends: dict[int, float] = defaultdict(float)
        for hop in self.hops:
            times = {name: self.shown(hop["source_worker"], hop[name]) for name in ("emitted", "sent")}
            times |= {name: self.shown(hop["worker"], hop[name]) for name in ("arrived", "started", "finished")}
            reported = hop | times | {"source_incarnation": 0}
            self.add("hop", reported.pop("worker"), at=times["finished"], **reported)
            ends[hop["root"]] = max(ends[hop["root"]], hop["finished"])
        for root in self.roots:
            root["finished"] = ends[root["root"]]
            self.add("done", "controller", at=root["finished"], **{k: root[k] for k in ("root", "due", "finished")})
        for worker, clock in self.clocks.items():
            for segment in clock.segments:
                self.add("clock", worker, at=segment.at, offset=segment.offset, drift=segment.drift, error=1e-5)
        for at, name in ((FIRST_S, "round-robin"), (CHANGE_S, "local-search")):
            self.add("event", "controller", at=at, event="phase", detail=name)
        self._tell_tasks()

    def _tell_tasks(self) -> None:
        for second in range(int(END_S)):
            for worker in WORKERS:
                lag = {
                    "interval": 1.0,
                    "busy": BUSY[worker],
                    "lag": LAGS_S[second >= CHANGE_S] * (1 if worker == "m0" else 0.5),
                }
                lag["memory_mb"] = MEMORY_MB[worker] + second
                lag["capacity_cpu"], lag["capacity_mb"] = CAPACITY[worker]
                self.add("machine", worker, at=self.shown(worker, second + 0.9), **lag)
            for task in TASKS:
                worker = self.placed(task, second)
                done = sum(hop["task"] == task and second <= hop["finished"] < second + 1 for hop in self.hops)
                given = RATE_TPS if task == "lines[0]" else 0
                reported = {"processed": done * SAMPLED, "given": given, "queue": 0, "busy": 0.1, "interval": 1.0}
                self.add("task", worker, at=self.shown(worker, second + 1.0), task=task, **reported)

    def add(self, kind: str, worker: str, **columns: Any) -> None:
        record = Record(kind=kind, run="r1", worker=worker, emulated=True, **columns)
        self.records.append(msgspec.structs.asdict(record))

    def write(self, folder: Path) -> Path:
        """Write one file per worker, as a run does, and return the run's folder."""
        (folder / "telemetry").mkdir(parents=True)
        by_worker: dict[str, list[Row]] = defaultdict(list)
        for record in self.records:
            by_worker[record["worker"]].append(record)
        for worker, rows in by_worker.items():
            write_records(folder / "telemetry" / f"{worker}-0.parquet", rows)
        facts = {"application": "word-count", "policy": "round-robin", "emulated": "hetero-small", "master": "local[2]"}
        facts |= {"run": folder.name, "started": "2026-01-01T00:00:00+00:00", "version": "0.1.0"}
        (folder / "run.json").write_bytes(msgspec.json.encode({**facts, "pid": 2**31 - 1}))
        return folder


def write_records(path: Path, rows: list[Row]) -> None:
    nullable = pa.schema([column.with_nullable(True) for column in arrow_schema()])
    pq.write_table(pa.Table.from_pylist(rows, schema=nullable), path)
