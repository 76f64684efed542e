"""`penstock run`: run an application, watch it, and end it well."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.app import STOPPED
from penstock.cli.autopilot.options import (
    AutopilotOption,
    CoolDownOption,
    IntervalOption,
    MovesOption,
    ShadowOption,
    ThresholdOption,
    piloting,
)
from penstock.cli.inputs import (
    JsonOption,
    MasterOption,
    ParametersOption,
    RoutingOption,
    SendingOption,
    SetOption,
    SlotOption,
    chosen_objective,
    chosen_parameters,
)
from penstock.cli.run_options import (
    ArrivalsOption,
    CheckpointOption,
    DurationOption,
    EmulateOption,
    FlowArgument,
    GuaranteeOption,
    InFlightOption,
    InputOption,
    ListenOption,
    ModelOption,
    NewRunsOption,
    ObjectiveOption,
    PlanOption,
    PolicyOption,
    ProtectOption,
    RateOption,
    ReportOption,
    RestartsOption,
    RestartWindowOption,
    ResumeOption,
    SampleOption,
    SeedOption,
    TelemetryOption,
    ThenOption,
    UmaskOption,
    checkpoint_s,
    octal,
    refuse_numbers,
    refuse_places,
    sampled_tps,
)
from penstock.cli.start_display import begin

if TYPE_CHECKING:
    from penstock.cli.follower import Display
    from penstock.model.status import Status
    from penstock.runtime.run import Run
    from penstock.runtime.storage.run_folder import RunInfo

EXAMPLE = "penstock run word-count --emulate hetero-small --policy r-storm --rate 1000 --duration 30"


def run(
    application: FlowArgument = None,
    parameter: SetOption = None,
    parameters: ParametersOption = None,
    master: MasterOption = None,
    emulate: EmulateOption = None,
    policy: PolicyOption = None,
    objective: ObjectiveOption = None,
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
    rate: RateOption = None,
    arrivals: ArrivalsOption = None,
    duration: DurationOption = None,
    telemetry: TelemetryOption = None,
    input: InputOption = None,  # noqa: A002  it is the option's name
    runs: NewRunsOption = Path("runs"),
    sample: SampleOption = None,
    in_flight: InFlightOption = None,
    listen: ListenOption = None,
    seed: SeedOption = None,
    checkpoint_every: CheckpointOption = None,
    guarantee: GuaranteeOption = None,
    protect_frames: ProtectOption = None,
    umask: UmaskOption = None,
    restarts: RestartsOption = None,
    restart_window: RestartWindowOption = None,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an application on Spark.

    It runs until its sources end, its time is up, or you stop it. Ctrl-C once drains: sources stop, all tuples in
    flight are processed and published. Ctrl-C twice stops at once; what came after the last checkpoint is then not
    published, and is processed again when the run is resumed. Meanwhile, from another terminal: penstock status, stop,
    runs and autopilot.
    """
    from penstock.cli.app_spec import Told, refuse_kept, tuple_policies, want
    from penstock.cli.run_plans import change_to, find_plans

    refuse_numbers(rate=rate, duration=duration, in_flight=in_flight, interval=interval, cool_down=cool_down)
    refuse_numbers(restart_window=restart_window)
    refuse_places(master, input, {"telemetry": telemetry, "runs": runs})
    settings: dict[str, Any] = {"master": master, "listen": listen, "in_flight": in_flight, "guarantee": guarantee}
    settings |= {"sample_tps": sampled_tps(sample), "checkpoint_s": checkpoint_s(checkpoint_every)}
    settings |= {"telemetry": telemetry, "runs": runs, "seed": seed}
    settings |= {"protect_frames": protect_frames, "umask": octal(umask)}
    settings |= {"restarts": restarts, "restart_window_s": restart_window}
    settings |= {"routing": routing, "sending": sending, "slot_ms": slot_ms}
    goal = settings["objective"] = None if objective is None else chosen_objective(objective)
    if resume is not None:
        refuse_kept(emulate=emulate, input=input, seed=seed)
    told = Told(application, rate, arrivals, input, seed or 0, chosen_parameters(parameter, parameters))
    wanted = want(told, emulate, goal, resume, runs)
    flow = wanted.told.flow()
    alone = plan is None and resume is None  # else there may be policies that a slot is for
    tuple_policies(flow.application, routing, sending, slot_ms if alone else None)
    plans = find_plans(wanted, flow, policy, plan, then or [], duration, model)
    settings |= {"plan": plans.first, "policy": plans.policy, "given": wanted.told.given(), **wanted.settings}
    goals = {"sample_tps": settings["sample_tps"], "model": model, "objective": objective, "seed": wanted.told.seed}
    goals |= {"application": flow.application, "cluster": wanted.cluster}
    asked = piloting(autopilot, shadow, interval, threshold, max_moves, cool_down, **goals)
    handle = begin(flow, settings, quiet=as_json)
    pilot = asked.attach(handle)
    try:
        _follow(handle, duration, as_json, [change_to(handle, name, make) for name, make in plans.later])
    finally:
        pilot.join()
    if report:
        _report(handle, as_json)


def _report(handle: "Run", as_json: bool) -> None:
    from penstock.cli.report import report

    report(str(handle.folder), as_json=as_json)


def _follow(handle: "Run", duration: float | None, as_json: bool, changes: list[Callable[[], str]]) -> None:
    """Show the run until it ends, then say how it went; the exit code is 1 where the application failed."""
    from penstock.cli.follower import Follower
    from penstock.cli.output import errors, print_json
    from penstock.runtime.storage.run_folder import load

    follower = Follower(handle, _display(as_json), duration, changes)
    status = follower.follow()
    info = load(handle.folder)
    if as_json:
        places = {"folder": info.folder, "telemetry": str(info.telemetry_path), "output": str(info.output_path)}
        print_json({"run": info.run, **places, "stopped_at_once": follower.stopped, "status": status})
    else:
        _summarise(status, info)
    if status.phase == "failed" or status.error:
        why = " ".join(status.error.split()) or "it did not say why"
        errors.print(f"error: {why}; more in {info.log_path}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1)
    if follower.stopped:
        raise typer.Exit(STOPPED)


def _display(as_json: bool) -> "Display":
    from penstock.cli.follower import LineDisplay, NoDisplay, TableDisplay
    from penstock.cli.output import errors

    if as_json:
        return NoDisplay()
    return TableDisplay(errors) if errors.is_terminal else LineDisplay(errors)


def _summarise(status: "Status", info: "RunInfo") -> None:
    from penstock.cli.output import console
    from penstock.cli.run_view import summary

    console.print()
    for name, text in summary(status, info):
        console.print(f"{name:<10}{text}", markup=False, soft_wrap=True)
