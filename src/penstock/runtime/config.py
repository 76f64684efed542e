"""The settings of a run: one frozen value, which the command line, files and programs make and everything else reads.

    config = RunConfig(execution=Execution(slots=4, seed=7), checkpointing=Checkpointing(interval_s=2.0))

`run.json` stores it, resuming a run changes it, workers receive it with their tasks. Every field states its default,
bounds, unit, meaning and option here and nowhere else: the help of `penstock run`, error messages and the reference
page (`reference`) are made from that. Changes are nested tables as in a file: `{"checkpointing": {"interval_s": 2.0}}`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from penstock.model.entity import Entity, NonNegative, Positive, SeedNumber, to_invalid_input, type_hints
from penstock.model.errors import InvalidInput
from penstock.model.objective import Objective
from penstock.model.setting import Field, Section, Setting, fields
from penstock.model.tuples import TuplePolicies, over

Changes = Mapping[str, object]
"""Some settings, as a file has them: section -> field -> value."""

PRIVATE = 0o077  # the umask that leaves files to their owner
MIN_INTERVAL_S = 0.1  # between checkpoints; saving one takes some hundredths
ALL = -1.0  # sample_tps that traces every tuple

Number = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Umask = Annotated[int, Meta(ge=0, le=PRIVATE)]


class AppSpec(Section, frozen=True, kw_only=True):
    """The application and the input of its sources, as the command line names them; `ps.run` is given a dataflow."""

    app: Annotated[str, Setting("A built-in name, a file, or code as module:object or file.py:object.")] = ""
    rate_tps: Annotated[
        Positive | None, Setting("Rate at which the sources emit tuples.", unit="tuples/s", option="--rate")
    ] = None
    arrivals: Annotated[
        str | None,
        Setting("Arrival process: poisson, on-off, replay:path=FILE, …, with --rate or rate=.", option="--arrivals"),
    ] = None
    input: Annotated[
        str | None, Setting("File or folder to read instead of generated data.", option="--input", fixed=True)
    ] = None
    parameters: Annotated[dict[str, Any], Setting("Parameters of the application; see --set and --parameters.")] = {}
    directory: Annotated[
        str, Setting("Directory in which modules and relative paths are looked up. Default: the current one.")
    ] = ""


class Execution(Section, frozen=True, kw_only=True):
    """Where the run executes, and as whom."""

    master: Annotated[
        str | None, Setting("Spark master URL. Default: an embedded session in this process.", option="--master")
    ] = None
    emulate: Annotated[
        str | None,
        Setting(
            "Cluster to emulate, a file or a built-in name. Default: none, machines are Spark's executors.",
            option="--emulate",
            fixed=True,
        ),
    ] = None
    slots: Annotated[
        Number | None, Setting("Worker processes if nothing is emulated. Default: one per core.", option="--slots")
    ] = None
    listen: Annotated[
        str | None,
        Setting(
            "Address on which the controller accepts workers, HOST or HOST:PORT. "
            "Default: loopback, or the driver's host with a Spark master.",
            option="--listen",
        ),
    ] = None
    share: Annotated[
        str | None,
        Setting("Folder through which runs on this host share emulated machines. Default: none, each has its own."),
    ] = None
    seed: Annotated[SeedNumber, Setting("Random seed.", option="--seed", fixed=True)] = 0
    parallelism: Annotated[
        dict[str, Number],
        Setting("Number of tasks of components, in place of the application's.", option="--parallelism"),
    ] = {}
    umask: Annotated[Umask, Setting("Permissions that the run's files do not have.", option="--umask", octal=True)] = (
        PRIVATE
    )
    protect_frames: Annotated[
        bool, Setting("Add a keyed checksum to every frame between workers.", option="--protect-frames")
    ] = False


class Planning(Section, frozen=True, kw_only=True):
    """Which policy places the tasks."""

    policy: Annotated[
        str, Setting("Placement policy, NAME or NAME:PARAMETER=VALUE; a plan replaces it.", option="--policy")
    ] = "round-robin"
    objective: Annotated[Objective, Setting("What a policy that searches optimizes.", option="--objective")] = (
        Objective.THROUGHPUT
    )


class Checkpointing(Section, frozen=True, kw_only=True):
    """When state is saved, and what must be guaranteed after a failure."""

    interval_s: Annotated[
        NonNegative,
        Setting(
            "Time between checkpoints, at least 0.1 s; none (0): only one, at the end.",
            unit="s",
            option="--checkpoint-every",
            words={"none": 0.0},
        ),
    ] = 5.0
    guarantee: Annotated[
        Literal["any", "exactly-once"],
        Setting("exactly-once refuses an application that cannot keep it.", option="--guarantee"),
    ] = "any"
    timeout_s: Annotated[Positive, Setting("Time without progress after which a checkpoint is aborted.", unit="s")] = (
        60.0
    )


class Recovery(Section, frozen=True, kw_only=True):
    """How failures are detected, and how often the run recovers from them."""

    max_restarts: Annotated[
        Annotated[int, Meta(ge=0)],
        Setting("Recoveries within the restart window after which the next failure ends the run.", option="--restarts"),
    ] = 10
    restart_window_s: Annotated[
        Positive, Setting("Time within which recoveries count.", unit="s", option="--restart-window")
    ] = 600.0
    restart_pause_s: Annotated[
        NonNegative,
        Setting("Pause before a recovery if no checkpoint followed the previous one; doubles each time.", unit="s"),
    ] = 0.5
    lease_s: Annotated[
        Positive, Setting("Time after which a worker that does not hear from the controller stops.", unit="s")
    ] = 3.0
    silence_s: Annotated[
        Positive,
        Setting("Time after which a worker that does not send a heartbeat is lost; at least lease_s.", unit="s"),
    ] = 5.0
    replacement_s: Annotated[
        NonNegative,
        Setting("Time to wait for the replacement of a lost worker before its tasks move to others.", unit="s"),
    ] = 5.0
    start_s: Annotated[Positive, Setting("Time within which all workers must start.", unit="s")] = 120.0

    def _check(self) -> None:
        if self.silence_s < self.lease_s:
            problem = f"expected a number ≥ lease_s ({self.lease_s:g}), got {self.silence_s:g}"
            raise InvalidInput("silence_s", f"{problem}; set both")


class FlowControl(Section, frozen=True, kw_only=True):
    """How many tuples may be in flight."""

    window: Annotated[Number, Setting("Maximum number of tuples in flight per channel.", unit="tuples")] = 2048
    in_flight: Annotated[
        Number | None,
        Setting("Maximum number of tuples in flight per source task. Default: no limit.", option="--in-flight"),
    ] = None


class Telemetry(Section, frozen=True, kw_only=True):
    """What the run records of itself."""

    enabled: Annotated[bool, Setting("Whether telemetry is written.", fixed=True)] = True
    folder: Annotated[
        str | None,
        Setting("Folder for telemetry. Default: a folder in the run's own.", option="--telemetry", fixed=True),
    ] = None
    sample_tps: Annotated[
        Annotated[float, Meta(ge=ALL, le=1e15)],
        Setting(
            "Tuples traced from source to sink, per second and source task; all (-1) or none (0).",
            unit="tuples/s",
            option="--sample",
            words={"all": ALL, "none": 0.0},
        ),
    ] = 20.0


class RunConfig(Section, frozen=True, kw_only=True):
    """The settings of a run, by section."""

    application: AppSpec | None = None  # None: a program's own dataflow
    execution: Execution = Execution()
    planning: Planning = Planning()
    checkpointing: Checkpointing = Checkpointing()
    recovery: Recovery = Recovery()
    flow_control: FlowControl = FlowControl()
    telemetry: Telemetry = Telemetry()
    tuple_policies: TuplePolicies = TuplePolicies()
    limits: Annotated[
        dict[str, NonNegative],
        Setting("Rate limits of sources: component -> tuples per second of all its tasks; 0 pauses it."),
    ] = {}

    def changed(self, changes: Changes) -> "RunConfig":
        """Return the settings with some of them replaced; tuple policies and parallelisms not named stay in force."""
        merged = _merged(msgspec.to_builtins(self), changes)
        try:
            named = msgspec.convert(merged, RunConfig)
        except msgspec.ValidationError as error:
            raise _with_remedy(to_invalid_input(error, merged, RunConfig), merged) from None
        return msgspec.structs.replace(named, tuple_policies=over(self.tuple_policies, named.tuple_policies))


SECTIONS: dict[str, type[Entity]] = {
    name: next(part for part in (kind, *get_args(kind)) if isinstance(part, type))
    for name, kind in type_hints(RunConfig, include_extras=False).items()
    if name != "limits"
}


def all_fields() -> Iterator[Field]:
    """Return every setting, section by section."""
    for name, section in SECTIONS.items():
        yield from fields(section, name).values()
    yield from fields(RunConfig).values()


BY_PATH = {each.path: each for each in all_fields()}


def refuse_fixed(before: RunConfig, after: RunConfig) -> None:
    """Refuse changes of settings that a resumed run keeps; its folders have a check of their own."""
    for each in BY_PATH.values():
        kept, wanted = value_of(before, each.path), value_of(after, each.path)
        if each.setting.fixed and each.path != "telemetry.folder" and kept != wanted:
            problem = f"a resumed run keeps {'its default' if kept is None else repr(kept)}, got {wanted!r}"
            raise InvalidInput(each.path, f"{problem}; leave it out, or start a new run")


def value_of(config: RunConfig, path: str) -> object:
    """Return the value of a setting; that of a section which is absent is its default."""
    section, _, name = path.rpartition(".")
    found = config if not section else getattr(config, section)
    return BY_PATH[path].default if found is None else getattr(found, name)


def reference() -> str:
    """Return the reference of all settings in Markdown, a section each."""
    lines: list[str] = []
    for name, section in SECTIONS.items():
        lines += [f"## `[{name}]`", "", _summary(section), "", *_table(fields(section, name).values())]
    lines += ["## `[limits]`", "", *_table(fields(RunConfig).values())]
    return "\n".join(lines)


def _summary(section: type[Entity]) -> str:
    return (section.__doc__ or "").partition("\n")[0]


def _table(rows: Any) -> list[str]:
    lines = ["| setting | value | default | meaning | option | on resume |", "|---|---|---|---|---|---|"]
    for each in rows:
        option = f"`{each.setting.option}`" if each.setting.option else ""
        cells = [f"`{each.name}`", each.kind_text, each.default_text, each.setting.description, option]
        lines.append(f"| {' | '.join([*cells, 'kept' if each.setting.fixed else 'may change'])} |")
    return [*lines, ""]


def _merged(before: dict[str, Any], changes: Changes) -> dict[str, object]:
    """Return the settings of a table with changes in their place; a section that is no table stays wrong."""
    after: dict[str, object] = dict(before)
    for section, values in changes.items():
        if section in SECTIONS and isinstance(values, Mapping):
            parsed = {name: _parsed(f"{section}.{name}", value) for name, value in values.items()}
            if section == "execution" and isinstance(counts := parsed.get("parallelism"), Mapping):
                parsed["parallelism"] = {**before[section]["parallelism"], **counts}
            after[section] = {**(before[section] or {}), **parsed}
        else:
            after[section] = values
    return after


def _parsed(path: str, value: object) -> object:
    return BY_PATH[path].parsed(value) if path in BY_PATH else value


def _with_remedy(error: InvalidInput, merged: Mapping[str, Any]) -> InvalidInput:
    if error.path not in BY_PATH:
        return error
    section, _, name = error.path.rpartition(".")
    return BY_PATH[error.path].refused(error, merged[section].get(name) if section else merged.get(name))
