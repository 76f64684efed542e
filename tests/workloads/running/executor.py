"""Runs a dataflow to its end in plain Python: component after component, task after task, tuples encoded as bytes."""

from pathlib import Path
from typing import Any

import msgspec

from penstock.api.contracts import Sink, Source, TaskContext, Timed
from penstock.api.dataflow import AuthorLogic, Dataflow, Outlet
from penstock.api.keyed import KeyContext, KeyedOperator
from penstock.api.keys import extractor, key_group, owner
from penstock.model.topology import Grouping
from penstock.runtime.storage.disk import Posix

Inbox = list[list[Any]]
"""What came to each task of a component."""


class Executor:
    """Runs a dataflow; then `sent` has the tuples of each stream, `inbox` and `logic` those of tasks."""

    def __init__(self, flow: Dataflow, folder: Path, tasks: int | None = None) -> None:
        self.flow = flow
        self.folder = folder
        self.tasks = {name: tasks or part.component.parallelism for name, part in flow.parts.items()}
        self.inbox: dict[str, Inbox] = {name: [[] for _ in range(count)] for name, count in self.tasks.items()}
        self.logic: dict[str, list[AuthorLogic]] = {}
        self.sent: dict[str, list[Any]] = {}
        self._turn: dict[str, int] = {}

    def run(self) -> "Executor":
        application = self.flow.application
        for position in application.order:
            name = application.components[position].name
            self.logic[name] = [self.flow.parts[name].logic() for _ in range(self.tasks[name])]
            for task, logic in enumerate(self.logic[name]):
                logic.open(TaskContext(name, task, self.tasks[name], folder=str(self.folder)))
                self._send(name, task, self._run_task(name, logic, self.inbox[name][task]))
                logic.close()
        return self

    def _run_task(self, name: str, logic: AuthorLogic, values: list[Any]) -> list[Any]:
        if isinstance(logic, Source):
            return self._poll(logic)
        if isinstance(logic, Sink):
            for first in range(0, len(values), 7):
                logic.write(values[first : first + 7])
            for temporary, final in logic.prepare():
                Posix().publish(temporary, final)
            return []
        if isinstance(logic, KeyedOperator):
            return self._run_keyed(name, logic, values)
        given = [made for value in values for made in logic.process(value) or ()]
        return [*given, *(logic.finish() or ())]

    def _run_keyed(self, name: str, logic: KeyedOperator[Any, Any, Any], values: list[Any]) -> list[Any]:
        key_of = extractor(self.flow.parts[name].inputs[0].keys)
        states: dict[Any, Any] = {}
        given: list[Any] = []
        context = KeyContext(lambda: 0.0)
        for value in values:
            key = context.key = value if key_of is None else key_of(value)
            states[key], made = logic.process(context, states.get(key, logic.initial()), value)
            given += made or ()
        return given

    def _poll(self, source: Source[Any]) -> list[Any]:
        now, given = 0.0, []
        while (polled := source.poll(now, 50)) is not None:
            values = polled.values if isinstance(polled, Timed) else polled
            given += list(values)
            now = now if values else max(now, source.next_due(now)) + 0.001
        return given

    def _send(self, source: str, task: int, values: list[Any]) -> None:
        for outlet, target in self.flow.inputs():
            if outlet.component != source:
                continue
            chosen = [value for output, value in values if output == outlet.output] if outlet.output else values
            self._route(outlet, target, task, chosen)

    def _route(self, outlet: Outlet, target: str, task: int, values: list[Any]) -> None:
        label, tasks = f"{outlet.component}->{target}", self.tasks[target]
        direct = outlet.grouping is Grouping.DIRECT
        named = [place for place, _ in values] if direct else [0] * len(values)
        bare = [value for _, value in values] if direct else values
        arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(bare), type=list[self.flow.stream_type(outlet)])  # type: ignore[misc]
        assert arrived == bare, "what arrives is what was sent"
        self.sent.setdefault(label, []).extend(arrived)
        for place, value in zip(named, arrived, strict=True):
            for chosen in range(tasks) if outlet.grouping is Grouping.ALL else [self._chosen(outlet, target, value)]:
                self.inbox[target][task if outlet.grouping is Grouping.FORWARD else place or chosen].append(value)

    def _chosen(self, outlet: Outlet, target: str, value: Any) -> int:
        if outlet.grouping in (Grouping.FIELDS, Grouping.PARTIAL_KEY):
            take = extractor(outlet.keys)
            return owner(key_group(value if take is None else take(value)), self.tasks[target])
        if outlet.grouping in (Grouping.GLOBAL, Grouping.DIRECT):
            return 0
        return self._next(f"{outlet.component}->{target}") % self.tasks[target]

    def _next(self, label: str) -> int:
        self._turn[label] = self._turn.get(label, -1) + 1
        return self._turn[label]
