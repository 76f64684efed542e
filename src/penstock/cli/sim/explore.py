"""`penstock sim explore`: telemetry of many random placements, to learn from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.inputs import JsonOption, RunsOption, application_names, cluster_names

if TYPE_CHECKING:
    from penstock.exploration.guarded_exploration import Limits
    from penstock.exploration.index import Explored, Index
    from penstock.model.costs import Costs

SAMPLE_TPS = 20.0  # on the twin, unless said
MOVES = 3  # live, unless said
USUAL_WINDOW_S = 30.0  # of the pipeline, too
EXAMPLE = "penstock sim explore word-count li-10 --rates 500:3000 --sample 2 --output explored"


def explore(
    application: Annotated[
        str | None,
        typer.Argument(metavar="APP", help="An application: a file or a name.", autocompletion=application_names),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Argument(metavar="CLUSTER", help="A cluster: a file or a name.", autocompletion=cluster_names),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Instead of APP and CLUSTER, live: a run's name, its folder, or latest.")
    ] = None,
    output: Annotated[Path, typer.Option(help="A folder for telemetry and the index.")] = Path("explored"),
    placements: Annotated[int, typer.Option(help="How many to try.", min=1, max=100_000)] = 40,
    hold: Annotated[float, typer.Option(help="Seconds that each counts; a multiple of --window.")] = 60.0,
    settle: Annotated[
        float | None, typer.Option(help="Seconds before, that do not count; a window unless said.", min=0)
    ] = None,
    window: Annotated[float, typer.Option(help="Seconds of the pipeline's windows.")] = USUAL_WINDOW_S,
    rates: Annotated[
        str | None,
        typer.Option(metavar="LOW:HIGH", help="Tuples a second of all sources, drawn for each; the APP's own."),
    ] = None,
    margin: Annotated[
        float, typer.Option(help="How much more than its load a placement must carry, as a share.", min=0)
    ] = 0.2,
    costs: Annotated[Path | None, typer.Option(help="Costs that penstock sim calibrate has written.")] = None,
    sample: Annotated[
        float | None,
        typer.Option(help="On the twin: tuples a second of each source task that are followed; 20.", min=0.001),
    ] = None,
    moves: Annotated[int | None, typer.Option(help="Live: most tasks that move at a time; 3.", min=1)] = None,
    most_latency: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Live: mean latency at which to stop; 5 times the present one unless said."),
    ] = None,
    seed: Annotated[int, typer.Option(help="For everything that is drawn by lot.", min=0)] = 0,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Try random placements and write their telemetry.

    Each placement, on the twin or on a run, becomes a run of its own. Placements use from one machine to all of them in
    turn; only those that sustain the load by the estimator are tried. On a run, tasks move a few at a time, latency is
    watched, and at the end, or on Ctrl-C, all tasks return to where they were. Use the folder with penstock models
    tables --input; placements.json lists which run had which placement.
    """
    from penstock.cli.output import print_json
    from penstock.exploration.guarded_exploration import Limits
    from penstock.model.costs import Costs
    from penstock.model.files import load_costs
    from penstock.runtime.storage.run_folder import refuse_unwritable

    refuse_unwritable(output, "--output")
    _refuse_explored(output)
    settings: dict[str, Any] = _times(hold, settle, window)
    settings |= {"placements": placements, "margin": margin, "seed": seed, "tried": _Tried(placements, as_json)}
    known = Costs() if costs is None else load_costs(costs)
    if run is not None:
        _refuse_live(application, cluster, rates, sample)
        index = _live(
            run, runs, output, known, Limits(MOVES if moves is None else moves, _seconds(most_latency)), settings
        )
    else:
        _refuse_twin(application, cluster, most_latency, moves)
        followed = {"sample_tps": SAMPLE_TPS if sample is None else sample}
        index = _twin(application or "", cluster or "", output, known, rates, settings | followed)
    path = index.save(output) if index.runs else None
    if as_json:
        print_json(index)
    else:
        _conclude(index, path)
    if index.stopped or index.left:
        raise typer.Exit(1)


def _times(hold: float, settle: float | None, window: float) -> dict[str, float]:
    from penstock.model.errors import InvalidInput

    for name, value in (("window", window), ("hold", hold)):
        if not 0 < value < float("inf"):
            raise InvalidInput(name, f"expected a number > 0, got {value:g}; choose another --{name}")
    if settle is not None and not 0 <= settle < float("inf"):
        raise InvalidInput("settle", f"expected a number ≥ 0, got {settle:g}; choose another --settle")
    if abs(hold / window - round(hold / window)) > 1e-9 or hold < window:
        problem = f"expected a multiple of the window of {window:g} s, so that none holds two placements, got {hold:g}"
        raise InvalidInput("hold", f"{problem}; choose another --hold")
    return {"hold_s": hold, "settle_s": window if settle is None else settle, "window_s": window}


def _refuse_live(application: str | None, cluster: str | None, rates: str | None, sample: float | None) -> None:
    from penstock.model.errors import InvalidInput

    if application is not None or cluster is not None:
        named = application if application is not None else cluster
        raise InvalidInput("run", f"expected APP and CLUSTER or --run, got {named!r} and a run; leave one out")
    if sample is not None:
        problem = "is for the twin, a run follows as many tuples as it was started with"
        raise InvalidInput("sample", f"{problem}; leave --sample out")
    if rates is not None:
        raise InvalidInput("rates", "a run's load is what comes to it; leave --rates out, or explore the twin")


def _refuse_twin(application: str | None, cluster: str | None, most_latency: float | None, moves: int | None) -> None:
    from penstock.model.errors import InvalidInput

    if application is None or cluster is None:
        raise InvalidInput("app", "expected APP and CLUSTER, or --run RUN; penstock show lists those there are")
    if most_latency is not None:
        raise InvalidInput("most_latency", "is for --run; leave --most-latency out")
    if moves is not None:
        raise InvalidInput("moves", "is for --run, nothing moves on the twin; leave --moves out")


def _factors(rates: str | None, offered: float | None) -> tuple[float, float]:
    """Return between which multiples of its load an application is to be tried."""
    from penstock.model.errors import InvalidInput

    if rates is None:
        return 1.0, 1.0
    low, colon, high = rates.partition(":")
    try:
        least, most = float(low), float(high)
    except ValueError:
        least, most = 1.0, 0.0
    if not (colon and 0 < least <= most < float("inf")):
        raise InvalidInput("rates", f"expected LOW:HIGH, tuples a second, such as 500:2000, got {rates!r}")
    total = offered or 1.0
    return least / total, most / total


def _seconds(milliseconds: float | None) -> float | None:
    from penstock.model.errors import InvalidInput

    if milliseconds is not None and not 0 < milliseconds < float("inf"):
        problem = f"expected a number > 0, got {milliseconds:g}; choose another --most-latency"
        raise InvalidInput("most_latency", problem)
    return None if milliseconds is None else milliseconds / 1e3


def _refuse_explored(output: Path) -> None:
    """Refuse a folder that holds another exploration, whose runs would be learnt from along with the new ones."""
    from penstock.exploration.index import INDEX, RUNS
    from penstock.model.errors import FileProblem

    if (output / INDEX).exists() or any(output.glob(f"{RUNS}.parquet")):
        raise FileProblem(f"{output}: it has the runs of another exploration; choose another --output, or remove it")


def _twin(
    application: str, cluster: str, output: Path, costs: "Costs", rates: str | None, settings: dict[str, Any]
) -> "Index":
    import msgspec

    from penstock.cli.inputs import both
    from penstock.exploration.twin_exploration import explore_twin

    wanted, machines = both(application, cluster)
    if not wanted.rate_tps and rates is not None:
        share = {source.name: 1.0 / len(wanted.sources) for source in wanted.sources}
        wanted = msgspec.structs.replace(wanted, rate_tps=share)
    factors = _factors(rates, wanted.offered_tps)
    return explore_twin(wanted, machines, output, costs=costs, factors=factors, **settings)


def _live(run: str, runs: Path, output: Path, costs: "Costs", limits: "Limits", settings: dict[str, Any]) -> "Index":
    from penstock.cli.output import errors
    from penstock.cli.sim.calibrate import application_of
    from penstock.exploration.live_exploration import RemoteTarget, explore_run, machines_of
    from penstock.runtime.storage.run_folder import find_running

    info = find_running(run, runs)
    application = application_of(info, None)
    target = RemoteTarget(info, application, machines_of(info))
    output.mkdir(parents=True, exist_ok=True)
    measured = costs.applied(application)
    index, done = explore_run(info, target, output, limits=limits, application=measured, **settings)
    if done.skipped:
        errors.print(f"{done.skipped} placements were left out: no way there sustains the load", markup=False)
    return index


class _Tried:
    """Says a line for each placement that was tried."""

    def __init__(self, placements: int, quiet: bool) -> None:
        self._placements = placements
        self._quiet = quiet

    def __call__(self, name: str, found: "Explored") -> None:
        from penstock.cli.output import duration, errors, number

        if self._quiet:
            return
        latency = "nothing came to its end" if found.mean_s is None else f"mean latency {duration(found.mean_s)}"
        where = f"{found.machines} machine{'s' if found.machines > 1 else ''}"
        text = f"{name} of {self._placements}: {where}, {number(sum(found.rates.values()))} tuples/s, {latency}"
        errors.print(text, markup=False, soft_wrap=True)


def _conclude(index: "Index", path: Path | None) -> None:
    from penstock.cli.formatting import plural
    from penstock.cli.output import console

    way = "live" if index.live else "on the twin"
    told = f"{plural(len(index.runs), 'placement')} of {index.application} on {index.cluster}, {way}"
    told += "; nothing is written" if path is None else f"; written: {path}"
    console.print(told, markup=False, soft_wrap=True)
    early = f"it ended early: {index.stopped}" if index.stopped else ""
    back = index.left or ("tasks are where they were" if early and index.live else "")
    if early or back:
        console.print("; ".join(filter(None, (early, back))), markup=False, soft_wrap=True)
    elif path is not None:
        window = "" if index.window_s == USUAL_WINDOW_S else f" --window {index.window_s:g}"
        told = f"next: penstock models tables --input {path.parent} --output TABLES{window}"
        console.print(told, markup=False, soft_wrap=True)
