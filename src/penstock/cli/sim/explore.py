"""`penstock sim explore`: try random placements and write their telemetry."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli import inputs
from penstock.cli.flows import both
from penstock.cli.formatting import plural
from penstock.cli.output import duration, note_unless, number, print_json, print_line, print_note
from penstock.cli.sim import scenario
from penstock.cli.sim.calibrate import application_of
from penstock.exploration.guarded_exploration import Limits
from penstock.exploration.index import INDEX, RUNS, Explored, Index, Trials
from penstock.exploration.live_exploration import RemoteTarget, explore_run, machines_of
from penstock.exploration.twin_exploration import explore_twin
from penstock.model.costs import Costs
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.files import load_costs
from penstock.model.topology import Application
from penstock.runtime.storage.run_folder import find_running, refuse_unwritable

SAMPLE_TPS = 20.0  # default on the twin
MOVES = 3  # default on a run
USUAL_WINDOW_S = 30.0  # also the default of the pipeline

ApplicationArgument = Annotated[
    str | None,
    typer.Argument(metavar="APP", help="An application: a file or a name.", autocompletion=inputs.application_names),
]
ClusterArgument = Annotated[
    str | None,
    typer.Argument(metavar="CLUSTER", help="A cluster: a file or a name.", autocompletion=inputs.cluster_names),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        help="Explore a running application instead of APP and CLUSTER: its run's name, its folder, or latest."
    ),
]
OutputOption = Annotated[Path, typer.Option(help="Folder for telemetry and the index.")]
PlacementsOption = Annotated[int, typer.Option(help="Number of placements to try.", min=1, max=100_000)]
HoldOption = Annotated[float, typer.Option(help="Measured seconds per placement; a multiple of --window.")]
SettleOption = Annotated[
    float | None, typer.Option(help="Seconds before each placement that are not measured; default: one window.", min=0)
]
WindowOption = Annotated[float, typer.Option(help="Length of the pipeline's windows in seconds.")]
RatesOption = Annotated[
    str | None,
    typer.Option(
        metavar="LOW:HIGH",
        help="Range of the random rate of each placement, in tuples per second of all sources; "
        "default: APP's own rate.",
    ),
]
MarginOption = Annotated[
    float, typer.Option(help="Spare capacity that a placement must have, as a share of its load.", min=0)
]
SampleOption = Annotated[
    float | None, typer.Option(help="Tuples traced per second, per source task, on the twin; default: 20.", min=0.001)
]
MovesOption = Annotated[
    int | None, typer.Option(help="Maximum tasks that move at a time, with --run; default: 3.", min=1)
]
MostLatencyOption = Annotated[
    float | None,
    typer.Option(metavar="MS", help="Mean latency at which to stop, with --run; default: 5 times the current one."),
]


def explore(
    application: ApplicationArgument = None,
    cluster: ClusterArgument = None,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    run: RunOption = None,
    output: OutputOption = Path("explored"),
    placements: PlacementsOption = 40,
    hold: HoldOption = 60.0,
    settle: SettleOption = None,
    window: WindowOption = USUAL_WINDOW_S,
    rates: RatesOption = None,
    margin: MarginOption = 0.2,
    costs: scenario.CostsOption = None,
    sample: SampleOption = None,
    moves: MovesOption = None,
    most_latency: MostLatencyOption = None,
    seed: inputs.SeedOption = 0,
    runs: inputs.RunsOption = Path("runs"),
    as_json: inputs.JsonOption = False,
) -> None:
    """Try random placements and write their telemetry.

    Each placement, on the twin or on a run, becomes a run of its own. Placements use from one machine to all of them in
    turn; only those that sustain the load by the estimator are tried. On a run, tasks move a few at a time, latency is
    watched, and at the end, or on Ctrl-C, all tasks return to where they were. Use the folder with penstock models
    tables --input; placements.json lists which run had which placement.

    Example: penstock sim explore word-count li-10 --rates 500:3000 --sample 2 --output explored
    """
    refuse_unwritable(output, "--output")
    _refuse_explored(output)
    _refuse_times(hold, settle, window)
    note = note_unless(as_json)
    before = window if settle is None else settle
    trials = Trials(
        placements, hold, before, window, margin, seed, lambda *tried: note(_placement_in_words(placements, *tried))
    )
    chosen = inputs.chosen_parameters(parameter, parameters)
    known = Costs() if costs is None else load_costs(costs)
    if run is not None:
        _refuse_live(application, cluster, rates, sample, chosen)
        limits = Limits(MOVES if moves is None else moves, _seconds(most_latency))
        index = _live(run, runs, output, known, limits, trials)
    else:
        _refuse_twin(application, cluster, most_latency, moves)
        wanted, machines = both(application or "", cluster or "", chosen)
        wanted, factors = _loaded(wanted, rates)
        traced = SAMPLE_TPS if sample is None else sample
        index = explore_twin(wanted, machines, output, trials, costs=known, factors=factors, sample_tps=traced)
    path = index.save(output) if index.runs else None
    if as_json:
        print_json(index)
    else:
        _conclude(index, path)
    if index.stopped or index.left:
        raise typer.Exit(1)


def _refuse_times(hold: float, settle: float | None, window: float) -> None:
    inputs.refuse_numbers(window=window, hold=hold)
    if settle is not None and not 0 <= settle < float("inf"):
        raise InvalidInput("settle", f"expected a number ≥ 0, got {settle:g}; choose another --settle")
    if abs(hold / window - round(hold / window)) > 1e-9 or hold < window:
        problem = f"expected a multiple of the window of {window:g} s, so that none holds two placements, got {hold:g}"
        raise InvalidInput("hold", f"{problem}; choose another --hold")


def _refuse_live(
    application: str | None, cluster: str | None, rates: str | None, sample: float | None, chosen: Mapping[str, Any]
) -> None:
    if application is not None or cluster is not None:
        named = application if application is not None else cluster
        raise InvalidInput("run", f"expected APP and CLUSTER or --run, got {named!r} and a run; leave one out")
    if sample is not None:
        problem = "is for the twin; a run traces as many tuples as it was started with"
        raise InvalidInput("sample", f"{problem}; leave --sample out")
    if chosen:
        raise InvalidInput("set", f"a run has its parameters, got {next(iter(chosen))!r}; leave it out")
    if rates is not None:
        raise InvalidInput("rates", "a run's load is what arrives; leave --rates out, or explore the twin")


def _refuse_twin(application: str | None, cluster: str | None, most_latency: float | None, moves: int | None) -> None:
    if application is None or cluster is None:
        raise InvalidInput("app", "expected APP and CLUSTER, or --run RUN; penstock show lists the built-in ones")
    if most_latency is not None:
        raise InvalidInput("most_latency", "is for --run; leave --most-latency out")
    if moves is not None:
        raise InvalidInput("moves", "is for --run, nothing moves on the twin; leave --moves out")


def _loaded(application: Application, rates: str | None) -> tuple[Application, tuple[float, float]]:
    """Return an application with a load, and the range of each placement's load, as multiples of it."""
    if rates is None:
        return application, (1.0, 1.0)
    low, colon, high = rates.partition(":")
    try:
        least, most = float(low), float(high)
    except ValueError:
        least, most = 1.0, 0.0
    if not (colon and 0 < least <= most < float("inf")):
        raise InvalidInput("rates", f"expected LOW:HIGH, tuples per second, such as 500:2000, got {rates!r}")
    if not application.rate_tps:
        share = {source.name: 1.0 / len(application.sources) for source in application.sources}
        application = msgspec.structs.replace(application, rate_tps=share)
    total = application.offered_tps or 1.0
    return application, (least / total, most / total)


def _seconds(milliseconds: float | None) -> float | None:
    inputs.refuse_numbers(most_latency=milliseconds)
    return None if milliseconds is None else milliseconds / 1e3


def _refuse_explored(output: Path) -> None:
    """Reject a folder that holds another exploration, whose runs would be mixed with the new ones."""
    if (output / INDEX).exists() or any(output.glob(f"{RUNS}.parquet")):
        raise FileProblem(f"{output}: it has the runs of another exploration; choose another --output, or remove it")


def _live(run: str, runs: Path, output: Path, costs: Costs, limits: Limits, trials: Trials) -> Index:
    info = find_running(run, runs)
    application = application_of(info, None)
    target = RemoteTarget(info, application, machines_of(info))
    output.mkdir(parents=True, exist_ok=True)
    index, done = explore_run(info, target, output, trials, limits, application=costs.applied(application))
    if done.skipped:
        print_note(f"{done.skipped} placements were skipped: no sequence of moves to them sustains the load")
    return index


def _placement_in_words(placements: int, name: str, found: Explored) -> str:
    """Describe a placement that was tried."""
    latency = "no tuple was completed" if found.mean_s is None else f"mean latency {duration(found.mean_s)}"
    tuples = f"{number(sum(found.rates.values()))} tuples/s"
    return f"{name} of {placements}: {plural(found.machines, 'machine')}, {tuples}, {latency}"


def _conclude(index: Index, path: Path | None) -> None:
    target = "live" if index.live else "on the twin"
    text = f"{plural(len(index.runs), 'placement')} of {index.application} on {index.cluster}, {target}"
    text += "; nothing was written" if path is None else f"; written: {path}"
    print_line(text)
    early = f"ended early: {index.stopped}" if index.stopped else ""
    back = index.left or ("all tasks are back where they were" if early and index.live else "")
    if early or back:
        print_line("; ".join(filter(None, (early, back))))
    elif path is not None:
        window = "" if index.window_s == USUAL_WINDOW_S else f" --window {index.window_s:g}"
        text = f"next: penstock models tables --input {path.parent} --output TABLES{window}"
        print_line(text)
