"""The dataflow: an application as its author writes it, and the topology that policies use, from the same object.

flow = ps.Dataflow("word-count")
lines = flow.source("lines", ps.Lines("book.txt", rate=1000))
words = flow.flat_map("split", str.split, lines, parallelism=2, emits=str)
count = flow.stateful_map("count", lambda n, word: (n + 1, (word, n + 1)), words.fields(), initial=0, parallelism=4)
flow.sink("print", ps.Console(), count)
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from penstock.api.contracts import Operator, Sink, Source
from penstock.api.keyed import KeyedOperator, StatefulFlatMap, StatefulMap, check_ttl
from penstock.api.keys import KEY_GROUPS, Key, check_keys, key_name
from penstock.api.logic import FilterOperator, FlatMapOperator, Logic, MapOperator, maker, refuse_uncallable
from penstock.api.on_error import DeadLetters, ErrorPolicy, check_error_policy, letters_folder
from penstock.api.tuple_types import (
    argument_type,
    check_encodable,
    check_key,
    element_type,
    emitted_type,
    first_of_pair,
    initial_type,
    of_pair,
    returned_type,
)
from penstock.model.entity import Name, to_invalid_input
from penstock.model.errors import InvalidInput, PenstockError, UnknownName, nearest, refuse_duplicates, with_type
from penstock.model.parallelism import with_tasks
from penstock.model.topology import Application, Component, Grouping, Kind, Stream

AuthorLogic = Logic | KeyedOperator[Any, Any, Any]


@dataclass(frozen=True)
class Outlet:
    """The tuples that a component emits, and how they are distributed to the tasks of the next component.

    The default grouping is shuffle; the methods return an outlet with another grouping.
    """

    component: str
    output: str | None = None  # one of several named outputs
    grouping: Grouping = Grouping.SHUFFLE
    keys: tuple[Key, ...] = ()
    selectivity: float | None = None  # for planning: tuples sent per processed tuple; None: 1
    tuple_bytes: float | None = None  # for planning; None: the model's default
    outputs: tuple[str, ...] = ()
    origin: object = field(default=None, compare=False, repr=False)  # identifies the dataflow to which it belongs

    def __getitem__(self, output: str) -> "Outlet":
        """Return one of several named outputs of a component."""
        if output not in self.outputs:
            raise UnknownName("output", f"{self.component!r} has no output {output!r}; {nearest(output, self.outputs)}")
        return replace(self, output=output)

    def fields(self, *keys: Key) -> "Outlet":
        """Send equal keys to the same task; without keys, the whole tuple is the key."""
        return replace(self, grouping=Grouping.FIELDS, keys=keys)

    def partial_key(self, *keys: Key) -> "Outlet":
        """Send each key to the less loaded of its two tasks."""
        return replace(self, grouping=Grouping.PARTIAL_KEY, keys=keys)

    def shuffle(self) -> "Outlet":
        """Send evenly to all tasks; the default."""
        return replace(self, grouping=Grouping.SHUFFLE, keys=())

    def all(self) -> "Outlet":
        """Send every tuple to every task."""
        return replace(self, grouping=Grouping.ALL, keys=())

    def to_first(self) -> "Outlet":
        """Send every tuple to task 0 (the global grouping)."""
        return replace(self, grouping=Grouping.GLOBAL, keys=())

    def direct(self) -> "Outlet":
        """Let the sender choose the task: it emits pairs `(task, value)`."""
        return replace(self, grouping=Grouping.DIRECT, keys=())

    def forward(self) -> "Outlet":
        """Send from task k to task k."""
        return replace(self, grouping=Grouping.FORWARD, keys=())

    def local_or_shuffle(self) -> "Outlet":
        """Send to a task in the same process if there is one, else evenly."""
        return replace(self, grouping=Grouping.LOCAL_OR_SHUFFLE, keys=())

    def costing(self, *, selectivity: float | None = None, tuple_bytes: float | None = None) -> "Outlet":
        """Set, for planning, the tuples sent per processed tuple and their size; omitted values are unchanged."""
        return replace(
            self,
            selectivity=self.selectivity if selectivity is None else selectivity,
            tuple_bytes=self.tuple_bytes if tuple_bytes is None else tuple_bytes,
        )


@dataclass(frozen=True)
class Part:
    """One component and its logic."""

    component: Component
    logic: Callable[[], AuthorLogic]  # creates the object of one task
    emits: Any  # the type of its tuples; a component with named outputs may have a dict, a type per output
    outputs: tuple[str, ...] = ()
    inputs: tuple[Outlet, ...] = ()
    declared: bool = True  # False: `emits` was derived from annotations, in which a direct stream's tuples are pairs
    errors: ErrorPolicy | None = None  # None: an exception ends the run
    letters: Callable[[], Sink[Any]] | None = None  # creates the sink of the tuples that a task skips
    keyed: bool = False  # the runtime keeps its state, by key
    state: Any = Any  # the type of the state of a key

    def make(self) -> AuthorLogic:
        """Create the object of one task; raise `InvalidInput` if the author's factory raises."""
        try:
            return self.logic()
        except (PenstockError, KeyboardInterrupt):
            raise
        except BaseException as error:  # includes sys.exit, which would end the whole process
            problem = f"its factory raised {with_type(error)}"
            raise InvalidInput(self.component.name, problem) from error


@dataclass
class Dataflow:
    """An application: components are added one after another, each after its inputs.

    The keywords `parallelism`, `cpu` (core-seconds per tuple), `memory_mb`, `service`, `pinned` and the other fields of
    `Component` describe the costs of a component and where it may run: policies plan with them, and emulated machines
    charge them. `emits` is the type of the tuples that a component emits. A declared type is checked when a tuple
    arrives from another process; within a process tuples are passed on without a copy. By default, the type is derived
    from annotations: those of a function, or the type arguments of a class (`Operator[str, int]`). `errors` determines
    what happens to a tuple for which the component's code raises: `Fail()` (default), `Skip()` or `Retry()`.
    """

    name: str
    parts: dict[str, Part] = field(default_factory=dict)
    _origin: object = field(default_factory=object, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        try:
            msgspec.convert(self.name, Name)
        except msgspec.ValidationError as error:
            raise to_invalid_input(error, self.name, Name).below("name") from None

    def source(
        self,
        name: str,
        source: Source[Any] | Callable[[], Source[Any]],
        *,
        emits: Any = None,
        outputs: Sequence[str] = (),
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> Outlet:
        """Add a source: an object that is copied for each task, or a class or function that creates one.

        With named `outputs`, `poll` returns pairs `(output, value)`, each one tuple.
        """
        inferred = partial(emitted_type, source, Source, 0)
        return self._add(name, Kind.SOURCE, maker(name, source, Source), (), emits, inferred, outputs, costs, errors)

    def operator(
        self,
        name: str,
        operator: Operator[Any, Any] | Callable[[], Operator[Any, Any]],
        *inputs: Outlet,
        emits: Any = None,
        outputs: Sequence[str] = (),
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> Outlet:
        """Add an operator: an object that is copied for each task, or a class or function that creates one.

        With named `outputs` it emits pairs `(output, value)`, and the next components use `outlet["output"]`; `emits`
        may then be a dict, a type per output.
        """
        inferred = partial(emitted_type, operator, Operator, 1)
        logic = maker(name, operator, Operator)
        return self._add(name, Kind.OPERATOR, logic, inputs, emits, inferred, outputs, costs, errors)

    def map(
        self,
        name: str,
        function: Callable[[Any], Any],
        *inputs: Outlet,
        emits: Any = None,
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> Outlet:
        """Add an operator that emits one tuple for each: the result of the function."""
        refuse_uncallable(name, function)
        logic, inferred = partial(MapOperator, function), partial(returned_type, function)
        return self._add(name, Kind.OPERATOR, logic, inputs, emits, inferred, (), costs, errors)

    def flat_map(
        self,
        name: str,
        function: Callable[[Any], Iterable[Any] | None],
        *inputs: Outlet,
        emits: Any = None,
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> Outlet:
        """Add an operator that emits any number of tuples for each: those that the function returns or yields."""
        refuse_uncallable(name, function)
        logic, inferred = partial(FlatMapOperator, function), lambda: element_type(returned_type(function))
        return self._add(name, Kind.OPERATOR, logic, inputs, emits, inferred, (), costs, errors)

    def filter(
        self,
        name: str,
        predicate: Callable[[Any], bool],
        *inputs: Outlet,
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> Outlet:
        """Add an operator that emits the tuples for which the function returns true."""
        refuse_uncallable(name, predicate)
        logic = partial(FilterOperator, predicate)
        return self._add(name, Kind.OPERATOR, logic, inputs, None, lambda: self._common_type(inputs), (), costs, errors)

    def stateful_map(
        self,
        name: str,
        function: Callable[[Any, Any], tuple[Any, Any]],
        *inputs: Outlet,
        initial: Any = None,
        ttl: float | None = None,
        state: Any = None,
        emits: Any = None,
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> Outlet:
        """Add an operator with a state per key that emits one tuple for each, for inputs grouped by `fields`.

        The function receives the state of the tuple's key and the tuple; it returns the next state and the output. The
        state None removes the key. `initial` is the state of a new key, or a function that creates it; `state` its
        type, if the function has no annotation. A key is removed `ttl` seconds after its last tuple.
        """
        refuse_uncallable(name, function)
        logic, inferred = partial(StatefulMap, function, initial, ttl), lambda: of_pair(returned_type(function))
        kept = _first_known(state, first_of_pair(returned_type(function)), initial_type(initial))
        check_ttl(f"{self.name}.{name}.ttl", ttl)
        return self._add(name, Kind.OPERATOR, logic, inputs, emits, inferred, (), costs, errors, kept)

    def stateful_flat_map(
        self,
        name: str,
        function: Callable[[Any, Any], tuple[Any, Iterable[Any] | None]],
        *inputs: Outlet,
        initial: Any = None,
        ttl: float | None = None,
        state: Any = None,
        emits: Any = None,
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> Outlet:
        """Add an operator with a state per key that emits any number of tuples for each, like `stateful_map`.

        The function returns the next state, and the tuples to emit or None.
        """
        refuse_uncallable(name, function)
        returned = returned_type(function)
        logic, inferred = partial(StatefulFlatMap, function, initial, ttl), lambda: element_type(of_pair(returned))
        kept = _first_known(state, first_of_pair(returned), initial_type(initial))
        check_ttl(f"{self.name}.{name}.ttl", ttl)
        return self._add(name, Kind.OPERATOR, logic, inputs, emits, inferred, (), costs, errors, kept)

    def keyed_operator(
        self,
        name: str,
        operator: KeyedOperator[Any, Any, Any] | Callable[[], KeyedOperator[Any, Any, Any]],
        *inputs: Outlet,
        state: Any = None,
        emits: Any = None,
        outputs: Sequence[str] = (),
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> Outlet:
        """Add an operator with a state and a timer per key: an object, or a class or function that creates one.

        Its inputs are grouped by `fields`. `state` is the type of a key's state; default: the class's type argument.
        """
        inferred = partial(emitted_type, operator, KeyedOperator, 2)
        logic = maker(name, operator, KeyedOperator)
        check_ttl(f"{self.name}.{name}.ttl", getattr(operator, "ttl", None))
        kept = _first_known(state, argument_type(operator, KeyedOperator, 0))
        return self._add(name, Kind.OPERATOR, logic, inputs, emits, inferred, outputs, costs, errors, kept)

    def sink(
        self,
        name: str,
        sink: Sink[Any] | Callable[[], Sink[Any]],
        *inputs: Outlet,
        errors: ErrorPolicy | None = None,
        **costs: Any,
    ) -> None:
        """Add a sink: an object that is copied for each task, or a class or function that creates one."""
        self._add(name, Kind.SINK, maker(name, sink, Sink), inputs, None, lambda: None, (), costs, errors)

    def resized(self, parallelism: Mapping[str, int]) -> "Dataflow":
        """Return the dataflow with other numbers of tasks, by component."""
        parts = dict(self.parts)
        for name, count in parallelism.items():
            path = f"parallelism.{name}"
            if name not in parts:
                raise UnknownName(path, f"{self.name!r} has no component {name!r}; {nearest(name, parts)}")
            parts[name] = replace(parts[name], component=with_tasks(parts[name].component, count))
            for outlet in parts[name].inputs:
                _check_tasks(path, outlet, parts[name].component)
        return Dataflow(self.name, parts)

    @property
    def application(self) -> Application:
        """The topology for policies, with the rates that the sources offer."""
        components = tuple(part.component for part in self.parts.values())
        rates = {c.name: self._offered(c.name) for c in components if c.kind is Kind.SOURCE}
        known = {name: rate for name, rate in rates.items() if rate is not None}
        return Application(
            name=self.name,
            components=components,
            streams=tuple(_stream(outlet, target) for outlet, target in self.inputs()),
            rate_tps=known if len(known) == len(rates) else {},
        )

    def stream_type(self, outlet: Outlet) -> Any:
        """Return the type of the tuples of an outlet."""
        part = self.parts[outlet.component]
        if isinstance(part.emits, dict):
            return part.emits.get(outlet.output, Any)
        if outlet.grouping is Grouping.DIRECT and not part.declared:
            return of_pair(part.emits) or Any
        return part.emits

    def inputs(self) -> list[tuple[Outlet, str]]:
        """Return the outlet and the target component of every stream, as in the topology."""
        return [(outlet, part.component.name) for part in self.parts.values() for outlet in part.inputs]

    def _common_type(self, inputs: tuple[Outlet, ...]) -> Any:
        kinds = [self.stream_type(outlet) for outlet in inputs]
        return kinds[0] if all(kind == kinds[0] for kind in kinds) else Any

    def _offered(self, name: str) -> float | None:
        made = self.parts[name].make()
        try:
            return made.rate_tps if isinstance(made, Source) else None
        except Exception as error:
            raise InvalidInput(f"{name}.rate_tps", f"raised {with_type(error)}") from error

    def _add(
        self,
        name: str,
        kind: Kind,
        logic: Callable[[], AuthorLogic],
        inputs: tuple[Outlet, ...],
        emits: Any,
        inferred: Callable[[], Any],
        outputs: Sequence[str],
        costs: dict[str, Any],
        errors: ErrorPolicy | None = None,
        state: Any = None,
    ) -> Outlet:
        """Add a component; `state`: the type of the state of a key, None if the runtime keeps no state for it."""
        path = f"{self.name}.{name}"
        if name in self.parts:
            raise InvalidInput(path, "this name is already used; choose another")
        try:
            component = Component(name=name, kind=kind, **_known_costs(costs))
        except InvalidInput as error:
            raise error.below(path) from None
        if kind is not Kind.SOURCE and not inputs:
            raise InvalidInput(path, "expected at least one input, got none; pass the component that feeds it")
        for position, outlet in enumerate(inputs):
            self._check_input(f"{path}.inputs[{position}]", outlet, component, inputs[:position])
            if state is not None and outlet.grouping is not Grouping.FIELDS:
                problem = f"expected a stream grouped by key, got {outlet.grouping}; group it with .fields(…)"
                raise InvalidInput(f"{path}.inputs[{position}]", problem)
        named = _checked_outputs(path, outputs)
        read = None if emits is not None else inferred()
        if named and read is not None:
            read = of_pair(read)
        carried = emits if emits is not None else Any if read is None else read
        _check_emits(path, carried, named)
        if state is not None:
            check_encodable(f"{path}.state", state)
        policy = check_error_policy(f"{path}.errors", errors)
        folder = None if policy is None else letters_folder(policy)
        letters = None if folder is None else partial(DeadLetters, folder)
        declared, keyed = emits is not None, state is not None
        self.parts[name] = Part(component, logic, carried, named, inputs, declared, policy, letters, keyed, state)
        return Outlet(name, outputs=named, origin=self._origin)

    def _check_input(self, path: str, outlet: Outlet, target: Component, before: tuple[Outlet, ...]) -> None:
        if not isinstance(outlet, Outlet):
            raise InvalidInput(path, f"expected what source(), operator() or map() returned, got {outlet!r}")
        if outlet.origin is not None and outlet.origin is not self._origin:
            problem = f"{outlet.component!r} belongs to another Dataflow"
            raise InvalidInput(path, f"{problem}; use what source(), operator() or map() of {self.name!r} returned")
        if outlet.component not in self.parts:
            raise UnknownName(path, f"{outlet.component!r} is not in {self.name!r}; add it first")
        if self.parts[outlet.component].outputs and outlet.output is None:
            example = self.parts[outlet.component].outputs[0]
            problem = f"{outlet.component!r} has several outputs; choose one as in outlet[{example!r}]"
            raise InvalidInput(path, problem)
        if outlet.component in [other.component for other in before]:
            problem = f"{outlet.component!r} is already an input; send both through one output, or insert a map"
            raise InvalidInput(path, problem)
        try:
            _stream(outlet, target.name)
        except InvalidInput as error:
            raise error.below(path) from None
        self._check_keys(path, outlet, target)
        self._check_direct(path, outlet)

    def _check_keys(self, path: str, outlet: Outlet, target: Component) -> None:
        _check_tasks(path, outlet, target)
        for position, key in enumerate(outlet.keys):
            check_key(f"{path}.keys[{position}]", key, self.stream_type(outlet))

    def _check_direct(self, path: str, outlet: Outlet) -> None:
        """Reject an output whose tuples are pairs for one component and not for another."""
        for other, target in self.inputs():
            if (other.component, other.output) != (outlet.component, outlet.output):
                continue
            if (other.grouping is Grouping.DIRECT) != (outlet.grouping is Grouping.DIRECT):
                problem = f"{outlet.component!r} sends to {target!r} by {other.grouping}, which excludes direct"
                raise InvalidInput(path, f"{problem}; define named outputs of {outlet.component!r}")


def _check_tasks(path: str, outlet: Outlet, target: Component) -> None:
    """Reject more tasks than there are key groups."""
    keyed = outlet.grouping in (Grouping.FIELDS, Grouping.PARTIAL_KEY)
    if keyed and target.parallelism > KEY_GROUPS:
        problem = f"keys can be distributed to at most {KEY_GROUPS} tasks, {target.name!r} has {target.parallelism}"
        raise InvalidInput(path, f"{problem}; lower its parallelism")


def _first_known(*types: Any) -> Any:
    """Return the first type that is known, else `Any`."""
    return next((kind for kind in types if kind is not None), Any)


_COSTS = tuple(name for name in Component.__struct_fields__ if name not in ("name", "kind"))


def _known_costs(costs: dict[str, Any]) -> dict[str, Any]:
    for given in costs:
        if given not in _COSTS:
            raise UnknownName(given, f"unknown keyword; {nearest(given, _COSTS)}")
    return costs


def _stream(outlet: Outlet, target: str) -> Stream:
    check_keys("keys", outlet.keys)
    declared = {"selectivity": outlet.selectivity, "tuple_bytes": outlet.tuple_bytes}
    return Stream(
        source=outlet.component,
        target=target,
        grouping=outlet.grouping,
        keys=tuple(key_name(key) for key in outlet.keys),
        **{name: value for name, value in declared.items() if value is not None},
    )


def _checked_outputs(path: str, outputs: Sequence[str]) -> tuple[str, ...]:
    if isinstance(outputs, str) or not all(isinstance(output, str) and output for output in outputs):
        raise InvalidInput(f"{path}.outputs", f"expected a list of names, got {outputs!r}")
    refuse_duplicates(f"{path}.outputs", outputs)
    return tuple(outputs)


def _check_emits(path: str, emits: Any, outputs: tuple[str, ...]) -> None:
    if not isinstance(emits, dict):
        check_encodable(f"{path}.emits", emits)
        return
    for output, kind in emits.items():
        if output not in outputs:
            has = nearest(output, outputs) if outputs else "it has none; define them with outputs="
            raise UnknownName(f"{path}.emits.{output}", f"no output is named {output!r}; {has}")
        check_encodable(f"{path}.emits.{output}", kind)


def output_folders(flow: Dataflow, run_folder: str) -> tuple[str, ...]:
    """Return the folders that the sinks of an application declare, including those of skipped tuples."""
    return tuple(os.path.abspath(os.path.join(run_folder, place)) for place in _declared(flow))


def _declared(flow: Dataflow) -> Iterator[str]:
    for part in flow.parts.values():
        for made in (part.logic(), None if part.letters is None else part.letters()):
            if isinstance(made, Sink):
                yield from (os.fspath(place) for place in made.folders())
