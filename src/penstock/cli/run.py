"""`penstock run`: run an application, watch it, and end it well."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.app import app
from penstock.cli.flows import flow_names
from penstock.cli.inputs import (
    JsonOption,
    RoutingOption,
    SendingOption,
    SlotOption,
    chosen_objective,
    cluster_names,
    objective_names,
    policy_names,
    refuse_master,
)
from penstock.cli.piloting import (
    AutopilotOption,
    CoolDownOption,
    IntervalOption,
    MovesOption,
    ShadowOption,
    ThresholdOption,
    piloting,
)

if TYPE_CHECKING:
    from penstock.api.dataflow import Dataflow
    from penstock.cli.follow import Display
    from penstock.estimate.evaluator import Objective
    from penstock.estimate.latency_models import LatencyModels
    from penstock.model.cluster import Cluster
    from penstock.model.plan import Plan
    from penstock.model.status import Status
    from penstock.runtime.folder import RunInfo
    from penstock.runtime.run import Run

EXAMPLES = """Examples:

  penstock run word-count --rate 1000 --duration 30

  penstock run word-count:sources=2,splitters=4 --emulate hetero-small --policy r-storm

  penstock run log-processing --arrivals poisson:rate=500 --input /var/log/syslog --master spark://head:7077

  penstock run word-count --emulate hetero-small --routing "source->split=potus" --sending longest-backlog-first:tau=10

  penstock run my_module:flow --emulate my-cluster.toml --plan plan.toml --telemetry /data/telemetry

  penstock run word-count --emulate hetero-small --autopilot local-search --shadow

  penstock run --resume word-count-20250131-142501
"""
STOPPED = 130  # exit code after Ctrl-C, as of other programs


@app.command(epilog=EXAMPLES)
def run(
    application: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="A built-in name, NAME or NAME:PARAMETER=VALUE, a file that describes an application, "
            "or module:object, a Dataflow or what makes one.",
            autocompletion=flow_names,
        ),
    ] = None,
    master: Annotated[str | None, typer.Option(help="A Spark master URL; without it, embedded.")] = None,
    emulate: Annotated[
        str | None,
        typer.Option(help="A cluster to emulate: a file or a built-in name.", autocompletion=cluster_names),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="The placement policy, NAME or NAME:PARAMETER=VALUE; round-robin unless said.",
            autocompletion=policy_names,
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="What a policy makes the most of: throughput (unless said), rate, delay, traffic or balanced.",
            autocompletion=objective_names,
        ),
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan file to run by, in place of a policy.")] = None,
    routing: RoutingOption = None,
    sending: SendingOption = None,
    slot_ms: SlotOption = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            help="A policy to change to while it runs, after an equal part of --duration; repeat for more.",
            autocompletion=policy_names,
        ),
    ] = None,
    autopilot: AutopilotOption = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Latency models, by which policies and the autopilot predict; see penstock train latency."),
    ] = None,
    shadow: ShadowOption = False,
    interval: IntervalOption = None,
    threshold: ThresholdOption = None,
    max_moves: MovesOption = None,
    cool_down: CoolDownOption = None,
    report: Annotated[bool, typer.Option("--report", help="When it has ended, report on its telemetry.")] = False,
    rate: Annotated[float | None, typer.Option(help="Tuples a second that the sources give.")] = None,
    arrivals: Annotated[
        str | None, typer.Option(help="How they come: poisson, on-off, replay:path=FILE, …, with --rate or rate=.")
    ] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds to run, then drain.")] = None,
    telemetry: Annotated[Path | None, typer.Option(help="A folder for telemetry, in place of the run's.")] = None,
    input: Annotated[  # noqa: A002  it is the option's name
        Path | None, typer.Option(help="A file or folder to read, in place of generated data.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are made.")] = Path("runs"),
    sample: Annotated[
        str | None,
        typer.Option(help="Tuples a second of each source task that are followed to the end, or all, or none; 20."),
    ] = None,
    in_flight: Annotated[int | None, typer.Option(help="Most tuples of each source task under way at once.")] = None,
    listen: Annotated[
        str | None, typer.Option(help="Where workers call, HOST or HOST:PORT; loopback, or the driver's host.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For everything that is drawn by lot; 0 unless said.", min=0)] = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="Time between checkpoints; none: only one, at the end. 5 unless said."),
    ] = None,
    guarantee: Annotated[
        str | None,
        typer.Option(help="exactly-once: refuse an application that cannot keep it; any (unless said): take it."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with a run from its last checkpoint: its name, its folder, or latest."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run an application on Spark until it ends, its time is up, or you stop it.

    Ctrl-C once drains: sources stop, everything under way is processed and published. Ctrl-C twice stops at once; what
    came after the last checkpoint is then not published, and comes again where the run is resumed. Meanwhile, from
    another terminal: penstock status, checkpoints, move, apply, autopilot, history, stop.
    """
    from penstock.cli.given import Told, find_resumed, refuse_kept, tuple_policies
    from penstock.cli.inputs import cluster as find_cluster

    _refuse_numbers(rate=rate, duration=duration, in_flight=in_flight, interval=interval, cool_down=cool_down)
    _refuse_places(master, input, {"telemetry": telemetry, "runs": runs})
    settings: dict[str, Any] = {"master": master, "policy": policy, "listen": listen, "in_flight": in_flight}
    settings |= {"sample_tps": _sampled(sample), "checkpoint_s": _every(checkpoint_every), "guarantee": guarantee}
    settings |= {"telemetry": telemetry, "runs": runs, "seed": seed, "resume": resume}
    settings |= {"routing": routing, "sending": sending, "slot_ms": slot_ms}
    settings |= {"objective": None if objective is None else chosen_objective(objective)}
    told = Told(application, rate, arrivals, input, seed or 0)
    if resume is None:
        cluster = settings["emulate"] = None if emulate is None else find_cluster(emulate)
        goal = settings["objective"]
    else:
        refuse_kept(emulate=emulate, input=input, seed=seed, telemetry=telemetry)
        found = find_resumed(told, resume, runs)
        told, cluster, goal = (
            found.told,
            found.cluster,
            settings["objective"] or chosen_objective(found.setup.objective),
        )
        settings["resume"] = found.info.path
    flow = told.flow()
    alone = plan is None and resume is None  # else there may be policies that a slot is for
    tuple_policies(flow.application, routing, sending, slot_ms if alone else None)
    settings |= {"plan": _planned(told.text or "", flow, cluster, policy, plan), "given": told.given()}
    models = _models(model, policy, cluster)
    if models is not None and policy is not None and cluster is not None:
        ((_, make),) = _plans(flow, cluster, [policy], goal, told.seed, models)
        settings |= {"plan": make(cluster), "policy": None}
    changes = _plans(flow, cluster, _changes(then or [], duration), goal, told.seed, models)
    goals = {"sample_tps": settings["sample_tps"], "model": model, "objective": objective, "seed": told.seed}
    asked = piloting(autopilot, shadow, interval, threshold, max_moves, cool_down, **goals)
    handle = _start(flow, settings, quiet=as_json)
    pilot = asked.attach(handle)
    try:
        _follow(handle, duration, as_json, [_change(handle, name, make) for name, make in changes])
    finally:
        pilot.join()
    if report:
        _report(handle, as_json)


def _refuse_numbers(**options: float | None) -> None:
    from penstock.model.errors import InvalidInput

    for name, value in options.items():
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInput(name, f"expected a number > 0, got {value:g}; choose another --{name.replace('_', '-')}")


def _sampled(text: str | None) -> float | None:
    """Return the tuples a second to follow: below 0 all, 0 none, None as usual."""
    from penstock.model.errors import InvalidInput

    if text is None or text in ("all", "none"):
        return None if text is None else -1.0 if text == "all" else 0.0
    try:
        sampled = float(text)
    except ValueError:
        sampled = -1.0
    if not 0 <= sampled < float("inf"):
        raise InvalidInput("sample", f"expected a number ≥ 0, all or none, got {text!r}; choose another --sample")
    return sampled


def _every(text: str | None) -> float | None:
    """Return the seconds between checkpoints: 0 for none but the last, None as usual."""
    from penstock.model.errors import InvalidInput

    if text is None or text == "none":
        return None if text is None else 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds < float("inf"):
        problem = f"expected seconds ≥ 0.1 or none, got {text!r}; choose another --checkpoint-every"
        raise InvalidInput("checkpoint_every", problem)
    return seconds


def _changes(policies: list[str], duration: float | None) -> list[str]:
    """Return the policies to change to, refusing those that nobody knows, or that would never have their turn."""
    from penstock.model.errors import InvalidInput
    from penstock.policies.registry import make

    for name in policies:
        make(name)
    if policies and duration is None:
        raise InvalidInput("then", f"expected --duration beside it, which says when to change to {policies[0]}")
    return policies


def _change(handle: "Run", policy: str, make: Callable[["Cluster"], "Plan"]) -> Callable[[], str]:
    """Return what has a policy place a running application's tasks anew."""

    def change() -> str:
        moved = handle.apply(make(handle.cluster))
        if not moved:
            return f"{policy} leaves all tasks where they are"
        held = max(outcome.seconds for outcome in moved)
        return f"{policy} moved {len(moved)} tasks; none was held up longer than {1e3 * held:.3g} ms"

    return change


def _models(file: Path | None, policy: str | None, cluster: "Cluster | None") -> "LatencyModels | None":
    """Return the latency models that policies go by; refuse a policy that would have to before machines are known."""
    from penstock.estimate.latency_models import load_models
    from penstock.model.errors import InvalidInput

    if file is not None and policy is not None and cluster is None:
        problem = f"a policy that goes by them must know the machines beforehand, got {policy!r} without --emulate"
        raise InvalidInput("model", f"{problem}; add it, or leave --policy out")
    return None if file is None else load_models(file)


def _plans(
    flow: "Dataflow",
    cluster: "Cluster | None",
    policies: list[str],
    objective: "Objective | None",
    seed: int,
    models: "LatencyModels | None",
) -> "list[tuple[str, Callable[[Cluster], Plan]]]":
    """Return each policy with what makes its plan: made already, where the cluster is known, to be there in time."""

    def maker(policy: str) -> "Callable[[Cluster], Plan]":
        from penstock.control.live import plan_by
        from penstock.estimate.evaluator import Objective

        goal = objective or Objective.THROUGHPUT
        if cluster is None:
            return lambda found: plan_by(policy, flow.application, found, goal, seed, models)
        made = plan_by(policy, flow.application, cluster, goal, seed, models)
        return lambda _: made

    return [(policy, maker(policy)) for policy in policies]


def _report(handle: "Run", as_json: bool) -> None:
    from penstock.cli.report import report

    report(str(handle.folder), as_json=as_json)


def _refuse_places(master: str | None, source: Path | None, folders: dict[str, Path | None]) -> None:
    """Refuse a master that is no URL of one, an input that is not there and folders that cannot be written."""
    from penstock.model.errors import FileProblem
    from penstock.runtime.folder import refuse_unwritable

    refuse_master(master)
    if source is not None and not source.exists():
        raise FileProblem(f"{source}: cannot be read, there is no such file or folder; choose another --input")
    for option, folder in folders.items():
        if folder is not None:
            refuse_unwritable(folder, f"--{option}")


def _planned(
    text: str, flow: "Dataflow", cluster: "Cluster | None", policy: str | None, file: Path | None
) -> "Plan | None":
    """Return the plan to run by, refusing one that does not fit; check the policy where there is none."""
    from penstock.cli.inputs import check_policies_in, naming, plan_file, refuse_pins
    from penstock.model.errors import InvalidInput
    from penstock.model.plan import to_placement
    from penstock.policies.registry import make

    topology = flow.application  # refuses what is no application, such as one without a sink
    if cluster is not None:
        refuse_pins(text, topology, cluster)
    if policy is not None and file is not None:
        raise InvalidInput("policy", f"expected --policy or --plan, got {policy!r} and {file}; leave one out")
    if policy is not None:
        make(policy)
    if file is None:
        return None
    plan = plan_file(file)
    if cluster is None and plan.cluster not in ("embedded", "spark"):
        problem = f"{file} is a plan for cluster {plan.cluster!r}; give --emulate {plan.cluster} beside it"
        raise InvalidInput("emulate", problem)
    if plan.application != topology.name:
        problem = f"{file} is a plan for {plan.application!r}, not for {topology.name!r}; plan again"
        raise InvalidInput("application", problem)
    check_policies_in(plan, file, topology)
    if cluster is not None:
        with naming(file):
            to_placement(plan, topology, cluster)
    return plan


class _Beginning:
    """Says what is being waited for while a run starts, and before that what the application promises."""

    def __init__(self, flow: "Dataflow", quiet: bool) -> None:
        from penstock.cli.output import errors

        self._flow, self._quiet, self._terminal, self._said = flow, quiet, errors, ""
        self._spinner = errors.status(f"starting {flow.name}")

    def __enter__(self) -> "_Beginning":
        if self._terminal.is_terminal and not self._quiet:
            self._spinner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._spinner.stop()

    def tell(self, text: str) -> None:
        """Say something that is to stay."""
        if not self._quiet:
            style = "yellow" if text.startswith("warning: ") else None
            self._terminal.print(text, markup=False, soft_wrap=True, style=style)

    def wait(self, text: str) -> None:
        """Say what is waited for."""
        from rich.markup import escape

        from penstock.cli.given import promise

        if self._quiet or text == self._said:
            return
        if not self._said:  # nothing was refused
            self.tell(promise(self._flow))
        self._said = text
        if self._terminal.is_terminal:
            self._spinner.update(escape(text))
        else:
            self.tell(text)


def _start(flow: "Dataflow", settings: dict[str, Any], quiet: bool) -> "Run":
    """Start the application, saying meanwhile what is being waited for; Ctrl-C is heeded between two steps of it."""
    from penstock.cli.follow import Interrupts
    from penstock.cli.output import console, errors
    from penstock.control.live import start
    from penstock.control.resuming import AtItsEnd
    from penstock.runtime.controller import RunFailed

    def progress(text: str) -> None:
        if interrupts.count:
            raise KeyboardInterrupt
        beginning.wait(text)

    try:
        with Interrupts() as interrupts, _Beginning(flow, quiet) as beginning:
            return start(flow, progress=progress, tell=beginning.tell, **settings)
    except AtItsEnd as end:
        if not end.published:
            raise
        console.print(str(end), markup=False, soft_wrap=True)
        raise typer.Exit from None
    except KeyboardInterrupt:
        errors.print("stopped while it was starting")
        raise typer.Exit(STOPPED) from None
    except RunFailed as failed:
        errors.print(f"error: {failed}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None


def _follow(handle: "Run", duration: float | None, as_json: bool, changes: list[Callable[[], str]]) -> None:
    """Show the run until it ends, then say how it went; the exit code is 1 where the application failed."""
    from penstock.cli.follow import Follower
    from penstock.cli.output import errors, print_json
    from penstock.runtime.folder import load

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
    from penstock.cli.follow import LineDisplay, NoDisplay, TableDisplay
    from penstock.cli.output import errors

    if as_json:
        return NoDisplay()
    return TableDisplay(errors) if errors.is_terminal else LineDisplay(errors)


def _summarise(status: "Status", info: "RunInfo") -> None:
    from penstock.cli.live import summary
    from penstock.cli.output import console

    console.print()
    for name, text in summary(status, info):
        console.print(f"{name:<10}{text}", markup=False, soft_wrap=True)
