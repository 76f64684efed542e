"""`penstock run` and `penstock runs resume`: run an application, show its progress, and end it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from msgspec import to_builtins
from rich.markup import escape

from penstock.api.dataflow import Dataflow
from penstock.cli import inputs
from penstock.cli.app import STOPPED
from penstock.cli.app_spec import Target, find_target, flow_of, guarantee_in_words, tuple_policies
from penstock.cli.autopilot import options as pilot_options
from penstock.cli.config_options import config_options, merged, naming_options, nested, with_options_of
from penstock.cli.follower import Display, Follower, Interrupts, LineDisplay, TableDisplay
from penstock.cli.output import console, errors, print_json, print_line, print_note
from penstock.cli.report import report as print_run_report
from penstock.cli.run_plans import Plans, change_to, find_plans
from penstock.cli.run_view import summary
from penstock.model.errors import FileProblem
from penstock.model.status import Status
from penstock.runtime.config import Changes
from penstock.runtime.run import Run
from penstock.runtime.storage.run_folder import LATEST, RunInfo, load, refuse_unwritable
from penstock.startup.config_file import load_changes
from penstock.startup.prepared_run import StartCallbacks
from penstock.startup.resume import AlreadyCompleted
from penstock.startup.start import start
from penstock.workloads.dataflows import DATAFLOWS

FlowArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="A built-in name, NAME or NAME:PARAMETER=VALUE, a file that describes an application (.toml, .json), "
        "or your code, a Dataflow or a function that makes one: module:object, file.py:object or file.py.",
        autocompletion=inputs.completing(*DATAFLOWS),
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings of the run (.toml, .json); options override them."),
]
PlanOption = Annotated[Path | None, typer.Option(help="Plan file to use instead of a placement policy.")]
ThenOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Policy to switch to during the run; repeatable: the switches divide --duration equally.",
        autocompletion=inputs.policy_names,
    ),
]
ModelOption = Annotated[
    Path | None, typer.Option(help="Latency models for policies and the autopilot, from penstock models train latency.")
]
ReportOption = Annotated[bool, typer.Option("--report", help="Print a report of its telemetry at the end.")]
DurationOption = Annotated[float | None, typer.Option(metavar="SECONDS", help="Time after which the run drains.")]
NewRunsOption = Annotated[Path, typer.Option(help="Folder for run folders.")]
ResumeArgument = Annotated[str | None, typer.Argument(metavar="RUN", help=inputs.RUN_HELP)]


@config_options
def start_or_resume(
    resume: ResumeArgument = None,
    application: FlowArgument = None,
    config: ConfigOption = None,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    plan: PlanOption = None,
    routing: inputs.RoutingOption = None,
    sending: inputs.SendingOption = None,
    slot_ms: inputs.SlotOption = None,
    then: ThenOption = None,
    autopilot: pilot_options.AutopilotOption = None,
    model: ModelOption = None,
    shadow: pilot_options.ShadowOption = False,
    interval: pilot_options.IntervalOption = None,
    threshold: pilot_options.ThresholdOption = None,
    max_moves: pilot_options.MovesOption = None,
    cool_down: pilot_options.CoolDownOption = None,
    report: ReportOption = False,
    duration: DurationOption = None,
    runs: NewRunsOption = Path("runs"),
    as_json: inputs.JsonOption = False,
    *,
    options: Mapping[str, object],
) -> None:
    """Start a run, or resume one, and show it until it ends."""
    inputs.refuse_numbers(duration=duration, interval=interval, cool_down=cool_down)
    with naming_options(options):
        named = _settings(config, options, application, inputs.chosen_parameters(parameter, parameters))
        target = find_target(named, resume, runs)
        settings = target.config
        folder = None if settings.telemetry.folder is None else Path(settings.telemetry.folder)
        source = None if settings.application is None else settings.application.input
        refuse_places(settings.execution.master, source, {"telemetry": folder, "runs": runs})
        flow = flow_of(target.spec, settings.execution.seed).resized(settings.execution.parallelism)
        alone = plan is None and resume is None  # otherwise the slot may be for policies of the plan or the resumed run
        tuples = tuple_policies(flow.application, routing, sending, slot_ms if alone else None)
        plans = find_plans(target, flow, _policy(target, named, options, plan), plan, then or [], duration, model)
        pilot_start = pilot_options.check_autopilot(
            pilot_options.AutopilotOptions(autopilot, shadow, interval, threshold, max_moves, cool_down),
            flow.application,
            settings,
            cluster=target.cluster,
            model=model,
            objective=settings.planning.objective if _names(named, "planning", "objective") else None,
        )
        changes = merged(target.changes(named), {"tuple_policies": to_builtins(tuples)})
        handle = start_run(flow, changes, plans, runs, target.resume, quiet=as_json)
    pilot = pilot_start.attach(handle)
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

    Example: penstock run word-count --emulate hetero-small --policy r-storm --rate 1000 --duration 30
    """
    start_or_resume(resume=None, **arguments)


@with_options_of(start_or_resume)
def resume(**arguments: Any) -> None:
    """Resume a run from its last checkpoint.

    The run continues after its driver died, it failed, or it was stopped with --now. Settings that are not named keep
    their values; the autopilot is off unless --autopilot names its policy. Name APP only if a program started the run,
    or if its code has moved.

    Example: penstock runs resume word-count-20250131-142501
    """
    start_or_resume(**{**arguments, "resume": arguments["resume"] or LATEST})


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
    print_run_report(str(handle.folder), as_json=as_json)


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
        print_note(f"error: {why}; more in {info.log_path}", "red")
        raise typer.Exit(1)
    if follower.stopped:
        raise typer.Exit(STOPPED)


def _display(as_json: bool) -> Display:
    if as_json:
        return Display()
    return TableDisplay(errors) if errors.is_terminal else LineDisplay(errors)


def _summarise(status: Status, info: RunInfo) -> None:
    console.print()
    for name, text in summary(status, info):
        print_line(f"{name:<10}{text}")


def refuse_places(master: str | None, source: str | None, folders: dict[str, Path | None]) -> None:
    """Reject an invalid master URL, a missing input, and folders that cannot be written."""
    inputs.refuse_master(master)
    if source is not None and not Path(source).exists():
        raise FileProblem(f"{source}: cannot be read, there is no such file or folder; choose another --input")
    for option, folder in folders.items():
        if folder is not None:
            refuse_unwritable(folder, f"--{option}")


def start_run(flow: Dataflow, changes: Changes, plans: Plans, runs: Path, resume: Path | None, *, quiet: bool) -> Run:
    """Start the application and print its progress; Ctrl-C takes effect between two steps."""

    def progress(text: str) -> None:
        if interrupts.count:
            raise KeyboardInterrupt
        display.show_progress(text)

    try:
        with Interrupts() as interrupts, _StartDisplay(flow, quiet) as display:
            return start(
                flow,
                config=changes,
                plan=plans.first,
                policy=plans.policy,
                runs=runs,
                resume=resume,
                callbacks=StartCallbacks(progress=progress, notify=display.notify),
            )
    except AlreadyCompleted as completed:
        if not completed.published:
            raise
        print_line(str(completed))
        raise typer.Exit from None
    except KeyboardInterrupt:
        raise typer.Abort("stopped while it was starting") from None


class _StartDisplay:
    """Prints the delivery guarantee of the application, then the progress of the start."""

    def __init__(self, flow: Dataflow, quiet: bool) -> None:
        self._flow, self._quiet, self._terminal, self._shown = flow, quiet, errors, ""
        self._spinner = errors.status(f"starting {flow.name}")

    def __enter__(self) -> Self:
        if self._terminal.is_terminal and not self._quiet:
            self._spinner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._spinner.stop()

    def notify(self, text: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            style = "yellow" if text.startswith("warning: ") else None
            self._terminal.print(text, markup=False, soft_wrap=True, style=style)

    def show_progress(self, text: str) -> None:
        """Show the step that the start waits for."""
        if self._quiet or text == self._shown:
            return
        if not self._shown:  # no setting was rejected
            self.notify(guarantee_in_words(self._flow))
        self._shown = text
        if self._terminal.is_terminal:
            self._spinner.update(escape(text))
        else:
            self.notify(text)
