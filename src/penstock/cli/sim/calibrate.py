"""`penstock sim calibrate`: measure what a cluster takes, and write it down for the twin and the planner."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.inputs import JsonOption, RunsOption, cluster_names, policy_names, refuse_master

if TYPE_CHECKING:
    from penstock.calibration import Calibration, Measured
    from penstock.calibration.calibrator import Calibrator
    from penstock.model.topology import Application
    from penstock.runtime.storage.run_folder import RunInfo

EXAMPLE = "penstock sim calibrate word-count --emulate hetero-small --rate 200 --duration 30 --output measured"
LATE_S = 0.05  # from which a worker's lateness is told


def calibrate(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|APP",
            help="A run's name or folder; or an application to run for that, as for penstock run. Without it, the "
            "latest run.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="A folder for the three files that are written.")] = Path("calibrated"),
    emulate: Annotated[
        str | None,
        typer.Option(help="Of an APP: a cluster to emulate, a file or a built-in name.", autocompletion=cluster_names),
    ] = None,
    master: Annotated[str | None, typer.Option(help="A Spark master URL; without it, embedded.")] = None,
    slots: Annotated[
        int | None, typer.Option(help="Worker processes, where nothing is emulated; as many as there are cores.", min=1)
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Of an APP: who places its tasks; round-robin unless said.", autocompletion=policy_names),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Of an APP: tuples a second that its sources give.")] = None,
    duration: Annotated[float, typer.Option(help="Of an APP: seconds to run it.")] = 20.0,
    settle: Annotated[float, typer.Option(help="Seconds at a run's beginning that do not count.", min=0)] = 2.0,
    application: Annotated[
        str | None, typer.Option(help="Of a RUN that a program has started: its application, module:object.")
    ] = None,
    probe: Annotated[
        bool | None,
        typer.Option(
            "--probe/--no-probe",
            help="Also run probes of the network and the engine. Unless said, not beside a run that is going on.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="For everything that is drawn by lot.", min=0)] = 0,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Measure the costs of components, streams, network and engine.

    They come from telemetry and from short probes. The command writes application.toml, cluster.toml and costs.toml,
    which penstock plan and penstock sim read. It prints the spread of each figure, and lists what it leaves as
    described.
    """
    from penstock.calibration.calibrator import Calibrator
    from penstock.cli.output import print_json
    from penstock.runtime.storage.run_folder import refuse_unwritable

    refuse_master(master)
    refuse_unwritable(output, "--output")
    info = _found_run(what, runs)
    _refuse_beside(info, emulate=emulate, policy=policy, rate=rate)
    _refuse_beside(None if info is not None else what, application=application)
    calibrator = Calibrator(master, slots, probe is not False, settle, _Telling(as_json))
    if info is not None:
        found = _of_run(calibrator, info, application, probe)
    else:
        found = _of_application(calibrator, what or "", emulate, policy, rate, duration, seed)
    files = found.save(output)
    if as_json:
        told = {name: getattr(found, name) for name in ("emulated", "seconds", "lag_s", "measured", "left")}
        print_json({**told, "files": {part: str(path) for part, path in files.items()}})
    else:
        _show(found, [str(path) for path in files.values()])


class _Telling:
    """Says what is being done, on the terminal's other stream."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, text: str) -> None:
        from penstock.cli.output import errors

        if not self._quiet:
            errors.print(text, markup=False, soft_wrap=True)


def _found_run(what: str | None, runs: Path) -> "RunInfo | None":
    """Return the run of a name or folder, the latest where nothing is named; None where an application is meant."""
    from penstock.runtime.storage.run_folder import INFO, LATEST, find

    if what is None or what == LATEST or (runs / what / INFO).is_file() or (Path(what) / INFO).is_file():
        return find(what, runs)
    return None


def _refuse_beside(meant: object, **options: object) -> None:
    """Refuse options that have no meaning beside what was named."""
    from penstock.model.errors import InvalidInput

    for name, value in options.items():
        if meant is not None and value is not None:
            kind = "an application" if name == "application" else "a run that is there"
            raise InvalidInput(name, f"has no meaning for {kind}, got {value!r}; leave --{name} out")


def application_of(info: "RunInfo", named: str | None) -> "Application":
    """Return the application of a run, as it was started, or as it is named."""
    from penstock.cli.app_spec import flow_of
    from penstock.model.errors import InvalidInput
    from penstock.runtime.config import AppSpec

    spec = info.settings.application
    if named is not None:
        return flow_of(AppSpec(app=named)).application
    if spec is None:
        problem = f"run {info.run} was started by a program; name its application, --application module:object"
        raise InvalidInput("application", problem)
    return flow_of(spec, info.settings.execution.seed).application


def _of_run(calibrator: "Calibrator", info: "RunInfo", named: str | None, probe: bool | None) -> "Calibration":
    from dataclasses import replace

    from penstock.model.errors import FileProblem
    from penstock.runtime.storage.run_folder import alive
    from penstock.startup.resume import emulated_cluster

    application = application_of(info, named)
    if not any(info.telemetry_path.glob("*.parquet")):  # before Spark is started for nothing
        raise FileProblem(f"{info.telemetry_path}: holds no telemetry (*.parquet); name a run that kept some")
    going = info.ended is None and alive(info.pid)
    if going and probe is None:
        calibrator = replace(calibrator, probes=False)
    return calibrator.run(info, application, emulated_cluster(info))


def _of_application(
    calibrator: "Calibrator",
    text: str,
    emulate: str | None,
    policy: str | None,
    rate: float | None,
    duration: float,
    seed: int,
) -> "Calibration":
    from penstock.cli.app_spec import flow_of
    from penstock.cli.inputs import cluster
    from penstock.model.errors import InvalidInput
    from penstock.policies.registry import placement_policy
    from penstock.runtime.config import AppSpec

    for name, value in (("rate", rate), ("duration", duration)):
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInput(name, f"expected a number > 0, got {value:g}; choose another --{name}")
    machines = None if emulate is None else cluster(emulate)
    if policy is not None:
        placement_policy(policy)
    flow = flow_of(AppSpec(app=text, rate_tps=rate), seed)
    return calibrator.start(flow, duration, emulate=machines, policy=policy, seed=seed)


def _show(found: "Calibration", files: list[str]) -> None:
    from penstock.cli.output import console, table

    on = "[yellow]emulated on[/] " if found.emulated else ""
    console.print(f"[bold]{found.application.name}[/] {on}{found.cluster.name}: {found.seconds:.3g} s counted")
    if found.lag_s > LATE_S:
        late = f"workers ran up to {found.lag_s:.2g} s late (a busy host); measure again when it is quiet"
        console.print(f"[yellow]{late}[/]")
    rows = table("measured", "value", "spread", "described", "tuples")
    for one in found.measured:
        described = "-" if one.described is None else _figure(one, one.described)
        rows.add_row(one.what, _figure(one, one.value), _figure(one, one.spread), described, f"{one.count:,}")
    console.print(rows)
    console.print("[dim]spread: standard deviation over tasks, pairs of slots or moves[/]")
    left = table("left as described", "why", left=("why",))
    for lack in found.left:
        left.add_row(lack.what, lack.why)
    console.print(left)
    console.print(f"written: {', '.join(files)}", markup=False, soft_wrap=True)


def _figure(one: "Measured", value: float) -> str:
    """Write a figure with its unit."""
    from penstock.cli.output import number

    if one.unit != "s":
        return f"{number(value)} {one.unit}".strip()
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
