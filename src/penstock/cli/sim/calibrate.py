"""`penstock sim calibrate`: measure the costs of an application and a cluster for the twin and the planner."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.calibration import Calibration, Measured
from penstock.calibration.calibrator import Calibrator
from penstock.cli import inputs
from penstock.cli.app_spec import flow_of
from penstock.cli.output import console, note_unless, number, print_json, print_line, table
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.topology import Application
from penstock.policies.registry import placement_policy
from penstock.runtime.config import AppSpec
from penstock.runtime.storage.run_folder import INFO, LATEST, RunInfo, alive, find_run, refuse_unwritable
from penstock.startup.resume import emulated_cluster
from penstock.workloads.clusters import find_cluster

LATE_S = 0.05  # minimum lag of workers that is reported

WhatArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|APP",
        help="A run's name or folder, or an application to run for it, as for penstock run; default: the latest run.",
    ),
]
OutputOption = Annotated[Path, typer.Option(help="Folder for the three files.")]
EmulateOption = Annotated[
    str | None,
    typer.Option(
        help="Cluster on which to emulate APP, a file or a built-in name.", autocompletion=inputs.cluster_names
    ),
]
SlotsOption = Annotated[
    int | None, typer.Option(help="Worker processes, without --emulate; default: the number of cores.", min=1)
]
PolicyOption = Annotated[
    str | None,
    typer.Option(help="Policy that places the tasks of APP; default: round-robin.", autocompletion=inputs.policy_names),
]
RateOption = Annotated[float | None, typer.Option(help="Tuples per second that the sources of APP emit.")]
DurationOption = Annotated[float, typer.Option(help="Seconds to run APP.")]
SettleOption = Annotated[float, typer.Option(help="Seconds at the start of a run that are not measured.", min=0)]
ApplicationOption = Annotated[
    str | None, typer.Option(help="Application of a RUN that a program started, module:object.")
]
ProbeOption = Annotated[
    bool | None,
    typer.Option(
        "--probe/--no-probe", help="Also run probes of the network and the engine; default: yes, except during a run."
    ),
]


def calibrate(
    what: WhatArgument = None,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    output: OutputOption = Path("calibrated"),
    emulate: EmulateOption = None,
    master: inputs.MasterOption = None,
    slots: SlotsOption = None,
    policy: PolicyOption = None,
    rate: RateOption = None,
    duration: DurationOption = 20.0,
    settle: SettleOption = 2.0,
    application: ApplicationOption = None,
    probe: ProbeOption = None,
    seed: inputs.SeedOption = 0,
    runs: inputs.RunsOption = Path("runs"),
    as_json: inputs.JsonOption = False,
) -> None:
    """Measure the costs of components, streams, network and engine.

    They come from telemetry and from short probes. The command writes application.toml, cluster.toml and costs.toml,
    which penstock plan and penstock sim read. It prints the spread of each figure, and lists what it leaves as
    described.

    Example: penstock sim calibrate word-count --emulate hetero-small --rate 200 --duration 30 --output measured
    """
    inputs.refuse_master(master)
    refuse_unwritable(output, "--output")
    info = _find_run(what, runs)
    _refuse_beside(info, emulate=emulate, policy=policy, rate=rate, set=parameter, parameters=parameters)
    _refuse_beside(None if info is not None else what, application=application)
    calibrator = Calibrator(master, slots, probe is not False, settle, note_unless(as_json))
    if info is not None:
        found = _of_run(calibrator, info, application, probe)
    else:
        inputs.refuse_numbers(rate=rate, duration=duration)
        spec = AppSpec(app=what or "", rate_tps=rate, parameters=inputs.chosen_parameters(parameter, parameters))
        found = _of_application(calibrator, spec, emulate, policy, duration, seed)
    files = found.save(output)
    if as_json:
        facts = {name: getattr(found, name) for name in ("emulated", "seconds", "lag_s", "measured", "left")}
        print_json({**facts, "files": {part: str(path) for part, path in files.items()}})
    else:
        _show(found, [str(path) for path in files.values()])


def _find_run(what: str | None, runs: Path) -> RunInfo | None:
    """Return the run of a name or folder, default: the latest; None if the text names an application."""
    if what is None or what == LATEST or (runs / what / INFO).is_file() or (Path(what) / INFO).is_file():
        return find_run(what, runs)
    return None


def _refuse_beside(meant: object, **options: object) -> None:
    """Reject options that do not apply to the named run or application."""
    for name, value in options.items():
        if meant is not None and value is not None:
            kind = "an application" if name == "application" else "a run that is there"
            raise InvalidInput(name, f"has no meaning for {kind}, got {value!r}; leave --{name} out")


def application_of(info: RunInfo, named: str | None) -> Application:
    """Return the application of a run: the named one, else that of its folder."""
    spec = info.config.application
    if named is not None:
        return flow_of(AppSpec(app=named)).application
    if spec is None:
        problem = f"run {info.run} was started by a program; name its application, --application module:object"
        raise InvalidInput("application", problem)
    execution = info.config.execution
    return flow_of(spec, execution.seed).resized(execution.parallelism).application


def _of_run(calibrator: Calibrator, info: RunInfo, named: str | None, probe: bool | None) -> Calibration:
    application = application_of(info, named)
    if not any(info.telemetry_path.glob("*.parquet")):  # before Spark starts
        raise FileProblem(f"{info.telemetry_path}: holds no telemetry (*.parquet); name a run that kept some")
    going = info.ended is None and alive(info.pid)
    if going and probe is None:
        calibrator = replace(calibrator, probes=False)
    return calibrator.run(info, application, emulated_cluster(info))


def _of_application(
    calibrator: Calibrator, spec: AppSpec, emulate: str | None, policy: str | None, duration: float, seed: int
) -> Calibration:
    machines = None if emulate is None else find_cluster(emulate)
    if policy is not None:
        placement_policy(policy)
    return calibrator.start(flow_of(spec, seed), duration, emulate=machines, policy=policy, seed=seed)


def _show(found: Calibration, files: list[str]) -> None:
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
    print_line(f"written: {', '.join(files)}")


def _figure(one: Measured, value: float) -> str:
    """Format a figure with its unit."""
    if one.unit != "s":
        return f"{number(value)} {one.unit}".strip()
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
