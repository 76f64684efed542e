"""What calibration observes, summed up from records in memory: the same tables as on Spark, without it."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd

from penstock.calibration.observation import KEPT, LOW, SHORTEST_S, RunSummary
from penstock.model.telemetry import Record, RecordKind


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return records as a table."""
    names = [field.name for field in msgspec.structs.fields(Record)]
    return pd.DataFrame({name: [getattr(record, name) for record in records] for name in names})


def observed(records: Sequence[Record] | pd.DataFrame, settle_s: float = 1.0) -> RunSummary:
    """Sum records up that are all on one clock, and none of them twice."""
    rows = records if isinstance(records, pd.DataFrame) else frame(records)
    kind = rows["kind"]
    tasks = rows[kind == RecordKind.TASK.value]
    begin, end = float((tasks["at"] - tasks["interval"]).min()) + settle_s, float(tasks["at"].max())
    inside = (rows["at"] - rows["interval"] >= begin) & (rows["at"] <= end)
    tasks = rows[inside & (kind == RecordKind.TASK.value)]
    machines = rows[inside & (kind == RecordKind.MACHINE.value)]
    hops = _hops(rows[kind == RecordKind.HOP.value])
    roots, done = rows[kind == RecordKind.ROOT.value], rows[kind == RecordKind.DONE.value]
    return RunSummary(
        run=str(rows["run"].iloc[0]),
        emulated=bool(rows["emulated"].iloc[0]),
        seconds=end - begin,
        tasks=_tasks(tasks),
        workers=_workers(machines),
        services=_services(hops[hops["started"].between(begin, end)]),
        streams=_streams(hops[hops["started"].between(begin, end)]),
        trees=_trees(hops[hops["root"].isin(done["root"])], roots[roots["root"].isin(done["root"])]),
        ways=_split_times(hops[hops["started"].between(begin, end)]),
    )


def _component(tasks: pd.Series) -> pd.Series:
    return tasks.str.replace(r"\[\d+\]$", "", regex=True)


def _hops(rows: pd.DataFrame) -> pd.DataFrame:
    times = {name: rows[name].astype(float) for name in ("sent", "arrived", "started", "finished")}
    return rows.assign(
        component=_component(rows["task"]),
        processing=times["finished"] - times["started"],
        transfer=times["arrived"] - times["sent"],
        started=times["started"],
        bytes=rows["bytes"].astype(float).fillna(0.0),
    )


def _tasks(rows: pd.DataFrame) -> pd.DataFrame:
    names = ["processed", "given", "busy", "blocked", "interval"]
    named = rows.assign(component=_component(rows["task"]), **{name: rows[name].astype(float) for name in names})
    return named.groupby(["component", "task", "worker"], as_index=False)[names].sum()


def _workers(rows: pd.DataFrame) -> pd.DataFrame:
    used = rows.assign(used=rows["busy"].astype(float) * rows["interval"].astype(float))
    grouped = used.assign(lag=used["lag"].astype(float).fillna(0.0)).groupby("worker", as_index=False)
    sums = {"used": ("used", "sum"), "interval": ("interval", "sum"), "lag": ("lag", "max")}
    return grouped.agg(**sums, **{name: (name, "max") for name in ("capacity_cpu", "capacity_mb")})


def _services(hops: pd.DataFrame) -> pd.DataFrame:
    logarithm = np.log(np.maximum(hops["processing"], SHORTEST_S))
    grouped = hops.assign(logarithm=logarithm).groupby(["component", "worker"])
    return pd.DataFrame(
        {
            "count": grouped.size(),
            "mean": grouped["processing"].mean(),
            "deviation": grouped["processing"].std(ddof=0),
            "log_mean": grouped["logarithm"].mean(),
            "log_deviation": grouped["logarithm"].std(ddof=0),
        }
    ).reset_index()


def _streams(hops: pd.DataFrame) -> pd.DataFrame:
    sized = hops.assign(sized=hops["bytes"].where(hops["bytes"] > 0), other=hops["source_worker"] != hops["worker"])
    grouped = sized.groupby("stream")
    return pd.DataFrame(
        {
            "count": grouped.size(),
            "bytes": grouped["sized"].mean(),
            "bytes_deviation": grouped["sized"].std(ddof=0),
            "remote": grouped["other"].mean(),
        }
    ).reset_index()


def _trees(hops: pd.DataFrame, roots: pd.DataFrame) -> pd.DataFrame:
    parts = [
        hops.groupby("stream").size().rename("followed").reset_index(),
        hops.groupby("component").size().rename("followed").reset_index(),
        roots.assign(component=_component(roots["task"])).groupby("component").size().rename("followed").reset_index(),
    ]
    return pd.concat(parts, ignore_index=True)


def _split_times(hops: pd.DataFrame) -> pd.DataFrame:
    keys = ["source", "task", "source_worker", "worker", "bytes"]
    grouped = hops.groupby(keys)["transfer"]
    table = pd.DataFrame({"count": grouped.size(), "median": grouped.median(), "low": grouped.quantile(LOW)})
    table["times"] = grouped.apply(lambda times: times.tolist()[:KEPT])
    return table.reset_index().rename(columns={"task": "target", "worker": "target_worker"})
