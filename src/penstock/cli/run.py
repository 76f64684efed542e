"""`penstock run`: run an application, show its progress, and end it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
from msgspec import to_builtins

from penstock.cli.app import STOPPED
from penstock.cli.app_spec import Target, find_target, flow_of, tuple_policies
from penstock.cli.autopilot.options import (
    AutopilotOption,
    CoolDownOption,
    IntervalOption,
    MovesOption,
    ShadowOption,
    ThresholdOption,
    check_autopilot,
)
from penstock.cli.config_options import config_options, merged, naming_options, nested, with_options_of
from penstock.cli.follower import Display, Follower, LineDisplay, NoDisplay, TableDisplay
from penstock.cli.inputs import (
    JsonOption,
    ParametersOption,
    RoutingOption,
    SendingOption,
    SetOption,
    SlotOption,
    chosen_parameters,
)
from penstock.cli.output import console, errors, print_json
from penstock.cli.run_options import (
    ConfigOption,
    DurationOption,
    FlowArgument,
    ModelOption,
    NewRunsOption,
    PlanOption,
    ReportOption,
    ResumeArgument,
    ThenOption,
    refuse_numbers,
    refuse_places,
)
from penstock.cli.run_plans import change_to, find_plans
from penstock.cli.run_view import summary
from penstock.cli.start_display import start_run
from penstock.model.status import Status
from penstock.runtime.config import Changes
from penstock.runtime.run import Run
from penstock.runtime.storage.run_folder import RunInfo, load
from penstock.startup.config_file import load_changes

EXAMPLE = "penstock run word-count --emulate hetero-small --policy r-storm --rate 1000 --duration 30"


@config_options
def start_or_resume(
    resume: ResumeArgument = None,
    application: FlowArgument = None,
    config: ConfigOption = None,
    parameter: SetOption = None,
    parameters: ParametersOption = None,
    plan: PlanOption = None,
    routing: RoutingOption = None,
    sending: SendingOption = None,
    slot_ms: SlotOption = None,
    then: ThenOption = None,
    autopilot: AutopilotOption = None,
    model: ModelOption = None,
    shadow: ShadowOption = False,
    interval: IntervalOption = None,
    threshold: ThresholdOption = None,
    max_moves: MovesOption = None,
    cool_down: CoolDownOption = None,
    report: ReportOption = False,
    duration: DurationOption = None,
    runs: NewRunsOption = Path("runs"),
    as_json: JsonOption = False,
    *,
    options: Mapping[str, object],
) -> None:
    """Start a run, or resume one, and show it until it ends."""
    refuse_numbers(duration=duration, interval=interval, cool_down=cool_down)
    with naming_options(options):
        named = _settings(config, options, application, chosen_parameters(parameter, parameters))
        target = find_target(named, resume, runs)
        settings = target.config
        folder = None if settings.telemetry.folder is None else Path(settings.telemetry.folder)
        source = None if settings.application is None else settings.application.input
        refuse_places(settings.execution.master, source, {"telemetry": folder, "runs": runs})
        flow = flow_of(target.spec, settings.execution.seed)
        alone = plan is None and resume is None  # otherwise the slot may be for policies of the plan or the resumed run
        tuples = tuple_policies(flow.application, routing, sending, slot_ms if alone else None)
        plans = find_plans(target, flow, _policy(target, named, options, plan), plan, then or [], duration, model)
        autopilot_settings = check_autopilot(
            autopilot,
            shadow,
            interval,
            threshold,
            max_moves,
            cool_down,
            application=flow.application,
            cluster=target.cluster,
            sample_tps=settings.telemetry.sample_tps,
            model=model,
            objective=settings.planning.objective if _names(named, "planning", "objective") else None,
            seed=settings.execution.seed,
        )
        changes = merged(target.changes(named), {"tuple_policies": to_builtins(tuples)})
        handle = start_run(flow, changes, plans, runs, target.resume, quiet=as_json)
    pilot = autopilot_settings.attach(handle)
    try:
        _follow(handle, duration, as_json, [change_to(handle, name, compute) for name, compute in plans.later])
    finally:
        pilot.join()
    if report:
        _report(handle, as_json)


@with_options_of(start_or_resume, "resume")
def run(**arguments: Any) -> None:
    """Run an application on Spark.

    It runs until its sources end, its time is up, or you stop it. Ctrl-C once drains: sources stop, all tuples in
    flight are processed and published. Ctrl-C twice stops at once; what came after the last checkpoint is then not
    published, and is processed again when the run is resumed. Meanwhile, from another terminal: penstock status, stop,
    runs and autopilot.
    """
    start_or_resume(resume=None, **arguments)


def _settings(
    file: Path | None, options: Mapping[str, object], application: str | None, parameters: Mapping[str, object]
) -> Changes:
    """Return the settings of a file and of the command line, which overrides the file."""
    found = {} if file is None else load_changes(file)
    spec: dict[str, object] = {} if application is None else {"app": application}
    if parameters:
        section = found.get("application")
        before = section.get("parameters", {}) if isinstance(section, Mapping) else {}
        spec["parameters"] = {**before, **parameters}
    return merged(merged(found, nested(options)), {"application": spec} if spec else {})


def _names(settings: Changes, section: str, name: str) -> bool:
    """Return whether settings include one."""
    values = settings.get(section)
    return isinstance(values, Mapping) and name in values


def _policy(target: Target, named: Changes, options: Mapping[str, object], plan: Path | None) -> str | None:
    """Return the placement policy; that of a file is ignored with a plan, or when a run is resumed."""
    in_force = plan is None and target.resume is None and _names(named, "planning", "policy")
    return target.config.planning.policy if in_force or "planning.policy" in options else None


def _report(handle: Run, as_json: bool) -> None:
    from penstock.cli.report import report  # imports pyspark

    report(str(handle.folder), as_json=as_json)


def _follow(handle: Run, duration: float | None, as_json: bool, changes: list[Callable[[], str]]) -> None:
    """Show the run until it ends, then summarize it; the exit code is 1 if the application failed."""
    follower = Follower(handle, _display(as_json), duration, changes)
    status = follower.follow()
    info = load(handle.folder)
    if as_json:
        places = {"folder": info.folder, "telemetry": str(info.telemetry_path), "output": str(info.output_path)}
        print_json({"run": info.run, **places, "stopped_at_once": follower.stopped, "status": status})
    else:
        _summarise(status, info)
    if status.phase == "failed" or status.error:
        why = " ".join(status.error.split()) or "no reason was recorded"
        errors.print(f"error: {why}; more in {info.log_path}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1)
    if follower.stopped:
        raise typer.Exit(STOPPED)


def _display(as_json: bool) -> Display:
    if as_json:
        return NoDisplay()
    return TableDisplay(errors) if errors.is_terminal else LineDisplay(errors)


def _summarise(status: Status, info: RunInfo) -> None:
    console.print()
    for name, text in summary(status, info):
        console.print(f"{name:<10}{text}", markup=False, soft_wrap=True)
