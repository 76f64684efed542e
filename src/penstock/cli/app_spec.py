"""Applications as the command line names them, and as the folder of a resumed run stores them."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from penstock.api.contracts import Operator
from penstock.api.dataflow import Dataflow
from penstock.api.guarantees import guarantees
from penstock.cli.flows import arrival_process, code_file, find_flow, names_code
from penstock.cli.inputs import is_file
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.topology import Topology
from penstock.model.tuples import TuplePolicies
from penstock.policies.streams import changed, check, parse_policies
from penstock.runtime.config import AppSpec, Changes, RunConfig, refuse_fixed
from penstock.runtime.worker.logic import LogicState
from penstock.startup.resume import emulated_cluster, find_resumable
from penstock.workloads.clusters import find_cluster
from penstock.workloads.dataflows import DATAFLOWS


def flow_of(spec: AppSpec, seed: int = 0) -> Dataflow:
    """Return the dataflow of an application; reject options that it does not take."""
    if not spec.app:
        ready = f"name one, {', '.join(DATAFLOWS)} or module:object"
        raise InvalidInput("app", f"expected an application, got none; {ready}")
    if spec.directory and spec.directory not in sys.path:
        sys.path.append(spec.directory)
    process = arrival_process(spec.arrivals, spec.rate_tps)
    return find_flow(
        spec.app,
        rate=spec.rate_tps if process is None else None,
        arrivals=process,
        input=None if spec.input is None else Path(spec.input),
        seed=seed,
        parameters=spec.parameters,
    )


def portable(spec: AppSpec) -> AppSpec:
    """Return a specification for the run's folder that can be resumed from any directory."""
    file, named = code_file(spec.app) if names_code(spec.app) else (Path(spec.app) if is_file(spec.app) else None, "")
    app = spec.app
    if file is not None and file.exists():
        app = os.path.abspath(file) + (f":{named.partition(':')[2]}" if named.partition(":")[2] else "")
    path = None if spec.input is None else os.path.abspath(spec.input)
    return replace(spec, app=app, input=path, directory=os.getcwd())


@dataclass(frozen=True)
class Target:
    """The target of `penstock run`: an application with its settings, new or resumed."""

    spec: AppSpec
    config: RunConfig
    cluster: Cluster | None  # the emulated one
    resume: Path | None = None  # the folder of the run to resume

    def changes(self, named: Changes) -> Changes:
        """Return the named settings, with the application as the run's folder stores it."""
        return {**named, "application": asdict(portable(self.spec))}


def find_target(named: Changes, resume: str | None, runs: Path) -> Target:
    """Return the new application, or the run to resume, with the named settings applied."""
    if resume is None:
        config = RunConfig().changed(named)
        emulate = config.execution.emulate
        return Target(config.application or AppSpec(), config, None if emulate is None else find_cluster(emulate))
    info, stored = find_resumable(resume, runs)
    application = _resumed_application(stored, named)
    config = stored.changed({**named, "application": application})
    refuse_fixed(stored, config)
    spec = config.application or AppSpec()
    if not spec.app:
        again = f"penstock runs resume {info.run} module:object"
        problem = f"run {info.run} was started by a program; name its application too: {again}"
        raise InvalidInput("app", f"{problem}, or have the program do it: ps.run(flow, resume={info.folder!r})")
    return Target(spec, config, emulated_cluster(info), info.path)


def _resumed_application(stored: RunConfig, named: Changes) -> dict[str, object]:
    """Return the changes of a resumed application: new arrivals replace rate and process, parameters are merged."""
    section = named.get("application")
    found: dict[str, object] = dict(section) if isinstance(section, Mapping) else {}
    if {"rate_tps", "arrivals"} & found.keys():
        found = {"rate_tps": None, "arrivals": None, **found}
    before: dict[str, Any] = {} if stored.application is None else stored.application.parameters
    parameters = found.get("parameters", {})
    return {**found, "parameters": {**before, **parameters} if isinstance(parameters, Mapping) else parameters}


def tuple_policies(
    application: Topology, routing: Sequence[str] | None, sending: str | None, slot_ms: float | None
) -> TuplePolicies:
    """Return the tuple policies of options; reject unknown ones, and those that a stream cannot have."""
    check(changed(TuplePolicies(), routing, sending, slot_ms), application)
    return parse_policies(routing, sending, slot_ms)


def guarantee_in_words(flow: Dataflow) -> str:
    """Describe the delivery guarantee of an application in one line; parts without exactly-once are named.

    An operator without a snapshot is assumed to have no state; only its author knows.
    """
    made = ((name, part.make()) for name, part in flow.parts.items())
    guessed = [
        f"{name!r} ({type(logic).__name__})"
        for name, logic in made
        if isinstance(logic, Operator) and LogicState(logic).guessed
    ]
    less = [str(found) for found in guarantees(flow) if not found.exactly_once]
    text = f"guarantee: exactly once, but for {'; '.join(less)}" if less else "guarantee: exactly once"
    return f"{text}; if operators without a snapshot have no state: {', '.join(guessed)}" if guessed else text
