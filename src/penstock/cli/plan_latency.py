"""Predictions of latency models for `penstock plan`: the load they assume, the paths, and warnings."""

from itertools import islice
from pathlib import Path
from typing import Any

from rich.markup import escape

from penstock.cli.output import console, number, print_line
from penstock.estimate.latency import LatencyModel, Prediction, load_models
from penstock.model.cluster import Cluster
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.topology import Application
from penstock.planning.planner import Decision, Planner, latency_model, observed_latency_model

SHOWN_PATHS = 5
ROUNDING = 1e-6  # relative difference of two sums of the same times


def latency_of(
    application: Application,
    cluster: Cluster,
    model: Path | None,
    rate: float | None,
    tables: Path | None = None,
    run: str | None = None,
) -> LatencyModel | None:
    """Return the latency model for the declared load or that of tables; None without models.

    A rate is divided equally among the sources; with tables, as they were observed.
    """
    for name, value in (("rate", rate), ("tables", tables)):
        if value is not None and model is None:
            more = " or --parallelism auto" if name == "rate" else ""
            raise InvalidInput(name, f"only latency models use it, got {value} without them; add --model FILE{more}")
    if run is not None and tables is None:
        raise InvalidInput("run", f"it is one of the runs in tables, got {run!r} without them; add --tables DIR")
    if model is None:
        return None
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidInput("rate", f"expected tuples per second > 0, got {rate:g}; choose another --rate")
    if tables is not None:
        if not tables.is_dir():
            raise FileProblem(f"{tables}: there is no such folder; check --tables")
        return observed_latency_model(load_models(model), application, cluster, tables, run=run, rate=rate)
    sources = [source.name for source in application.sources]
    if rate is None and not application.rate_tps:
        problem = f"a latency depends on the load, and {application.name!r} declares none; give --rate"
        raise InvalidInput("rate", f"{problem}, in tuples per second of all sources, or --tables")
    rates = None if rate is None else {name: rate / len(sources) for name in sources}
    return latency_model(load_models(model), application, cluster, rates)


def print_cautions(planner: Planner, decision: Decision) -> None:
    """Warn if a prediction extrapolates the training data, or exceeds the longest path because of a full element."""
    predicted = planner.predict(decision)
    if predicted is None:
        return
    if predicted.far:
        far = f"{predicted.excess:.0%} beyond the training data of the models; do not rely on it"
        console.print(f"[yellow]{decision.policy}: a load is {far}[/]", soft_wrap=True)
    if predicted.expected_s > (1 + ROUNDING) * predicted.total_s:
        full = f"its fullest machine, slot or link needs {predicted.busiest:.0%} of what it has"
        alone = f"the longest path alone takes {number(1e3 * predicted.total_s)} ms"
        console.print(f"[yellow]{decision.policy}: {full}; {alone}[/]", soft_wrap=True)


def print_training(planner: Planner) -> None:
    """Warn of models that were trained on another cluster or with another parallelism."""
    if planner.latency is None:
        return
    if warning := planner.latency.models.foreign(planner.cluster):
        console.print(f"[yellow]{escape(warning)}[/]", soft_wrap=True)
    seen = planner.latency.models.parallelism
    others = [one for one in planner.topology.components if seen.get(one.name, one.parallelism) != one.parallelism]
    if others:
        differences = ", ".join(f"{one.name} with {seen[one.name]} tasks, not {one.parallelism}" for one in others)
        console.print(f"[yellow]the models were trained on {differences}[/]", soft_wrap=True)


def print_paths(predicted: Prediction) -> None:
    """List the slowest paths of a placement with their predicted times."""
    try:
        paths = predicted.paths()
    except InvalidInput as problem:
        slowest = " → ".join(predicted.worst_path)
        print_line(f"  slowest path: {slowest}; {problem}")
        return
    more = f" of {len(paths):,}" if len(paths) > SHOWN_PATHS else ""
    console.print(f"  slowest paths{more}, as predicted:")
    for path, seconds in islice(paths.items(), SHOWN_PATHS):
        print_line(f"    {number(1e3 * seconds)} ms  {' → '.join(path)}")


def latency_record(planner: Planner, decision: Decision) -> dict[str, Any]:
    """Return the predicted latency of a decision for JSON; empty without models."""
    predicted = planner.predict(decision)
    if predicted is None:
        return {}
    found = {
        "longest_path_s": predicted.total_s,
        "worst_path": predicted.worst_path,
        "processing_s": dict(predicted.processing),
        "transfer_s": dict(predicted.transfer),
        "busiest": predicted.busiest,
        "beyond_training": predicted.excess,
    }
    return {"latency_ms": 1e3 * predicted.expected_s, "latency": found}


def paths_record(predicted: Prediction) -> list[dict[str, Any]]:
    """Return the slowest paths of a placement with their predicted times, for JSON; none if there are too many."""
    try:
        slowest = islice(predicted.paths().items(), SHOWN_PATHS)
    except InvalidInput:
        return []
    return [{"path": path, "seconds": seconds} for path, seconds in slowest]
