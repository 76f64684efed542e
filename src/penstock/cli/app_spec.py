"""The application as `penstock run` is told it, and as it was told it when a run is resumed."""

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.flows import arrival_process, code_file, find_flow, flow_names, names_code
from penstock.cli.inputs import chosen_objective, is_file
from penstock.cli.inputs import cluster as find_cluster
from penstock.model.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.api.dataflow import Dataflow
    from penstock.model.cluster import Cluster
    from penstock.model.objective import Objective
    from penstock.model.topology import Topology
    from penstock.model.tuples import TuplePolicies
    from penstock.runtime.storage.run_folder import Given, RunInfo, Setup


@dataclass(frozen=True)
class Told:
    """An application and the options that its sources take."""

    text: str | None
    rate: float | None = None
    arrivals: str | None = None
    input: Path | None = None
    seed: int = 0
    parameters: "Mapping[str, Any]" = field(default_factory=dict)

    def flow(self) -> "Dataflow":
        """Return the dataflow; refuse options that it does not take."""
        if self.text is None:
            ready = f"name one, {', '.join(flow_names(''))} or module:object"
            raise InvalidInput("app", f"expected an application or --resume RUN, got neither; {ready}")
        process = arrival_process(self.arrivals, self.rate)
        rate = self.rate if process is None else None
        return find_flow(
            self.text, rate=rate, arrivals=process, input=self.input, seed=self.seed, parameters=self.parameters
        )

    def given(self) -> "Given":
        """Return it as the run's folder is to keep it: whoever resumes the run may be in another directory."""
        from penstock.runtime.storage.run_folder import Given

        text = self.text or ""
        file, named = code_file(text) if names_code(text) else (Path(text) if is_file(text) else None, "")
        if file is not None and file.exists():
            text = os.path.abspath(file) + (f":{named.partition(':')[2]}" if named.partition(":")[2] else "")
        return Given(
            text=text,
            rate=self.rate,
            arrivals=self.arrivals,
            input=None if self.input is None else os.path.abspath(self.input),
            parameters=dict(self.parameters),
            directory=os.getcwd(),
        )


@dataclass(frozen=True)
class Resumed:
    """A run to go on with, and how it was started."""

    info: "RunInfo"
    setup: "Setup"
    told: Told
    cluster: "Cluster | None"  # that it emulates


def find_resumed(told: Told, run: str, runs: Path) -> Resumed:
    """Return a run with its application, what is told now in place of what was told then."""
    from penstock.startup.resume import emulated_cluster, find_resumable

    info, setup = find_resumable(run, runs)
    given = setup.given
    if given is None:
        if told.text is None:
            problem = f"run {info.run} was started by a program; name its application beside --resume, module:object"
            raise InvalidInput("app", f"{problem}, or have the program do it: ps.run(flow, resume={info.folder!r})")
        return Resumed(info, setup, replace(told, seed=setup.seed), emulated_cluster(info))
    if given.directory not in sys.path:
        sys.path.append(given.directory)
    faster = told.rate is not None or told.arrivals is not None
    was = Told(
        text=told.text or given.text,
        rate=told.rate if faster else given.rate,
        arrivals=told.arrivals if faster else given.arrivals,
        input=None if given.input is None else Path(given.input),
        seed=setup.seed,
        parameters={**given.parameters, **told.parameters},
    )
    return Resumed(info, setup, was, emulated_cluster(info))


@dataclass(frozen=True)
class Wanted:
    """What is to run and where: as it is told now, or as a run that is resumed had it."""

    told: Told
    cluster: "Cluster | None"  # to be emulated
    objective: "Objective | None"
    resume: Path | None = None  # the folder of the run to go on with

    @property
    def settings(self) -> dict[str, object]:
        """What `start` is to be given of it: a run that is resumed has its cluster already."""
        return {"resume": self.resume, **({"emulate": self.cluster} if self.resume is None else {})}


def want(told: Told, emulate: str | None, objective: "Objective | None", resume: str | None, runs: Path) -> Wanted:
    """Return what is to run: a new application, or the run that is named."""
    if resume is None:
        return Wanted(told, None if emulate is None else find_cluster(emulate), objective)
    found = find_resumed(told, resume, runs)
    goal = objective or chosen_objective(found.setup.objective)
    return Wanted(found.told, found.cluster, goal, found.info.path)


def refuse_kept(**options: object) -> None:
    """Refuse options that a run keeps as it was started with them."""
    for name, value in options.items():
        if value is not None:
            problem = f"a run that is resumed keeps what it had; leave --{name} out, or start a new run"
            raise InvalidInput(name, problem)


def tuple_policies(
    application: "Topology", routing: "Sequence[str] | None", sending: str | None, slot_ms: float | None
) -> "TuplePolicies":
    """Return tuple policies as options say them; refuse those that are not known or that a stream cannot have."""
    from penstock.model.tuples import TuplePolicies
    from penstock.policies.streams import changed, check, parse_policies

    check(changed(TuplePolicies(), routing, sending, slot_ms), application)
    return parse_policies(routing, sending, slot_ms)


def promise(flow: "Dataflow") -> str:
    """Say in a line what an application promises when something fails; only what is less than all takes words.

    An operator of a class without a snapshot is taken to have no state, which only its author knows.
    """
    from penstock.api.contracts import Operator
    from penstock.api.guarantees import guarantees
    from penstock.runtime.worker.logic import LogicState

    made = ((name, part.make()) for name, part in flow.parts.items())
    guessed = [
        f"{name!r} ({type(logic).__name__})"
        for name, logic in made
        if isinstance(logic, Operator) and LogicState(logic).guessed
    ]
    less = [str(found) for found in guarantees(flow) if not found.exactly_once]
    told = f"guarantee: exactly once, but for {'; '.join(less)}" if less else "guarantee: exactly once"
    return f"{told}; if operators without a snapshot have no state: {', '.join(guessed)}" if guessed else told
