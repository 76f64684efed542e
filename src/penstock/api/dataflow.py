"""The dataflow: an application as its author writes it, and the topology that policies plan from the same object.

    flow = ps.Dataflow("word-count")
    lines = flow.source("lines", ps.Lines("book.txt", rate=1000))
    words = flow.flat_map("split", str.split, lines, parallelism=2, gives=str)
    count = flow.operator("count", Count, words.fields(), parallelism=4, gives=tuple[str, int])
    flow.sink("print", ps.Console(), count)
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from penstock.api.contracts import Operator, Sink, Source
from penstock.api.keys import Key, key_name
from penstock.model.errors import InvalidInput, UnknownName, choices, refuse_duplicates
from penstock.model.topology import Application, Component, Grouping, Kind, Stream

Logic = Source[Any] | Operator[Any, Any] | Sink[Any]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Outlet:
    """The tuples that a component gives, and the way in which the next component is to get them.

    A component handed on as it is spreads its tuples evenly (shuffle); the methods choose another grouping.
    """

    component: str
    output: str | None = None  # one of several named outputs
    grouping: Grouping = Grouping.SHUFFLE
    keys: tuple[Key, ...] = ()
    selectivity: float | None = None  # for planning: tuples sent a tuple processed; None: 1
    tuple_bytes: float | None = None  # for planning; None: the model's default
    outputs: tuple[str, ...] = ()

    def __getitem__(self, output: str) -> "Outlet":
        """Return one of the named outputs of a component that has several."""
        if output not in self.outputs:
            raise UnknownName("output", f"{self.component!r} has no output {output!r}; it has {choices(self.outputs)}")
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
        """Let the sender name the task: it emits pairs `(task, value)`."""
        return replace(self, grouping=Grouping.DIRECT, keys=())

    def forward(self) -> "Outlet":
        """Send from task k to task k."""
        return replace(self, grouping=Grouping.FORWARD, keys=())

    def local_or_shuffle(self) -> "Outlet":
        """Send to a task in the same process where there is one, else evenly."""
        return replace(self, grouping=Grouping.LOCAL_OR_SHUFFLE, keys=())

    def costing(self, *, selectivity: float | None = None, tuple_bytes: float | None = None) -> "Outlet":
        """State, for planning, the tuples sent a tuple processed, and their size."""
        return replace(self, selectivity=selectivity, tuple_bytes=tuple_bytes)


@dataclass(frozen=True)
class Part:
    """One component with what it runs."""

    component: Component
    logic: Callable[[], Logic]  # makes the object of one task
    gives: Any  # the type of its tuples; with named outputs it may be a dict, a type an output
    outputs: tuple[str, ...] = ()
    inputs: tuple[Outlet, ...] = ()


class MapOperator(Operator[Any, Any]):
    """One tuple for each tuple, by a function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process(self, value: Any) -> Iterable[Any]:
        """Return what the function returns."""
        return (self.function(value),)


class FlatMapOperator(Operator[Any, Any]):
    """Any number of tuples for each tuple, by a function that returns them or a generator that yields them."""

    def __init__(self, function: Callable[[Any], Iterable[Any] | None]) -> None:
        self.process = function  # type: ignore[method-assign]  # saves a call a tuple


class FilterOperator(Operator[Any, Any]):
    """The tuples that a function says yes to."""

    def __init__(self, predicate: Callable[[Any], bool]) -> None:
        self.predicate = predicate

    def process(self, value: Any) -> Iterable[Any] | None:
        """Return the tuple or nothing."""
        return (value,) if self.predicate(value) else None


@dataclass
class Dataflow:
    """An application: components added one after the other, each after those that feed it.

    The keywords `parallelism`, `cpu` (core-seconds a tuple), `memory_mb`, `service`, `pinned` and the other fields of
    `Component` say what a component costs and where it may run: policies plan by them, and emulated machines charge
    them. `gives` is the type of a component's tuples: what is declared is checked when a tuple arrives from another
    process, and passed on without a copy within one. Where it is not given, the function's annotation counts.
    """

    name: str
    parts: dict[str, Part] = field(default_factory=dict)

    def source(
        self, name: str, source: Source[Any] | Callable[[], Source[Any]], *, gives: Any = None, **costs: Any
    ) -> Outlet:
        """Add a source."""
        kind = gives if gives is not None else _given(source, Source, 0)
        return self._add(name, Kind.SOURCE, _maker(name, source, Source), (), kind, (), costs)

    def operator(
        self,
        name: str,
        operator: Operator[Any, Any] | Callable[[], Operator[Any, Any]],
        *inputs: Outlet,
        gives: Any = None,
        outputs: Sequence[str] = (),
        **costs: Any,
    ) -> Outlet:
        """Add an operator: an object that is copied for each task, or a class or function that makes one.

        With named `outputs` it emits pairs `(output, value)`, and the next components take `outlet["output"]`.
        """
        kind = gives if gives is not None else _given(operator, Operator, 1)
        return self._add(name, Kind.OPERATOR, _maker(name, operator, Operator), inputs, kind, tuple(outputs), costs)

    def map(self, name: str, function: Callable[[Any], Any], *inputs: Outlet, gives: Any = None, **costs: Any) -> Outlet:
        """Add an operator that gives one tuple for each: what the function returns."""
        kind = gives if gives is not None else _returned(function)
        return self._add(name, Kind.OPERATOR, lambda: MapOperator(function), inputs, kind, (), costs)

    def flat_map(
        self,
        name: str,
        function: Callable[[Any], Iterable[Any] | None],
        *inputs: Outlet,
        gives: Any = None,
        **costs: Any,
    ) -> Outlet:
        """Add an operator that gives any number of tuples for each: those that the function returns or yields."""
        kind = gives if gives is not None else _element(_returned(function))
        return self._add(name, Kind.OPERATOR, lambda: FlatMapOperator(function), inputs, kind, (), costs)

    def filter(self, name: str, predicate: Callable[[Any], bool], *inputs: Outlet, **costs: Any) -> Outlet:
        """Add an operator that lets the tuples through that the function says yes to."""
        kinds = {id(self.parts[i.component].gives): self.parts[i.component].gives for i in inputs if i.component in self.parts}
        kind = next(iter(kinds.values())) if len(kinds) == 1 else Any
        return self._add(name, Kind.OPERATOR, lambda: FilterOperator(predicate), inputs, kind, (), costs)

    def sink(self, name: str, sink: Sink[Any] | Callable[[], Sink[Any]], *inputs: Outlet, **costs: Any) -> None:
        """Add a sink."""
        self._add(name, Kind.SINK, _maker(name, sink, Sink), inputs, Any, (), costs)

    @property
    def application(self) -> Application:
        """The topology that policies plan, with the rates that the sources offer."""
        components = tuple(part.component for part in self.parts.values())
        streams = tuple(
            _stream(outlet, part.component.name) for part in self.parts.values() for outlet in part.inputs
        )
        rates = {c.name: self._offered(c.name) for c in components if c.kind is Kind.SOURCE}
        known = {name: rate for name, rate in rates.items() if rate is not None}
        return Application(
            name=self.name,
            components=components,
            streams=streams,
            rate_tps=known if len(known) == len(rates) else {},
        )

    def stream_type(self, outlet: Outlet) -> Any:
        """Return the type of the tuples that leave by an outlet."""
        gives = self.parts[outlet.component].gives
        return gives.get(outlet.output, Any) if isinstance(gives, dict) else gives

    def inputs(self) -> list[tuple[Outlet, str]]:
        """Return every stream as the outlet that it leaves and the component that it enters, as in the topology."""
        return [(outlet, part.component.name) for part in self.parts.values() for outlet in part.inputs]

    def _offered(self, name: str) -> float | None:
        made = self.parts[name].logic()
        return made.rate_tps if isinstance(made, Source) else None

    def _add(
        self,
        name: str,
        kind: Kind,
        logic: Callable[[], Logic],
        inputs: tuple[Outlet, ...],
        gives: Any,
        outputs: tuple[str, ...],
        costs: dict[str, Any],
    ) -> Outlet:
        if name in self.parts:
            raise InvalidInput(f"{self.name}.{name}", "a component has that name already; choose another")
        component = Component(name=name, kind=kind, **_known_costs(name, costs))
        if kind is not Kind.SOURCE and not inputs:
            raise InvalidInput(f"{self.name}.{name}", "expected at least one input, got none; name what feeds it")
        refuse_duplicates(f"{name}.inputs", [outlet.component for outlet in inputs])
        for outlet in inputs:
            self._check_input(name, outlet)
        self.parts[name] = Part(component, logic, Any if gives is None else gives, outputs, inputs)
        return Outlet(name, outputs=outputs)

    def _check_input(self, name: str, outlet: Outlet) -> None:
        if not isinstance(outlet, Outlet):
            problem = f"expected what source(), operator() or map() returned, got {outlet!r}"
            raise InvalidInput(f"{name}.inputs", problem)
        if outlet.component not in self.parts:
            raise UnknownName(f"{name}.inputs", f"{outlet.component!r} is not in {self.name!r}; add it first")
        if self.parts[outlet.component].outputs and outlet.output is None:
            outputs = choices(self.parts[outlet.component].outputs)
            raise InvalidInput(f"{name}.inputs", f"{outlet.component!r} has several outputs; choose one of {outputs}")


_COSTS = tuple(name for name in Component.__struct_fields__ if name not in ("name", "kind"))


def _known_costs(name: str, costs: dict[str, Any]) -> dict[str, Any]:
    for given in costs:
        if given not in _COSTS:
            raise UnknownName(f"{name}.{given}", f"unknown keyword; expected one of {choices(_COSTS)}")
    return costs


def _stream(outlet: Outlet, target: str) -> Stream:
    stated = {"selectivity": outlet.selectivity, "tuple_bytes": outlet.tuple_bytes}
    return Stream(
        source=outlet.component,
        target=target,
        grouping=outlet.grouping,
        keys=tuple(key_name(key) for key in outlet.keys),
        **{name: value for name, value in stated.items() if value is not None},
    )


def _maker(name: str, given: Any, kind: type[Made]) -> Callable[[], Made]:
    """Return what makes the object of one task: a copy of the object given, or a call of what was given."""
    if isinstance(given, kind):
        return lambda: copy.deepcopy(given)
    if isinstance(given, type) and issubclass(given, kind):
        return given
    if callable(given):
        return lambda: _checked(name, given(), kind)
    raise InvalidInput(name, f"expected a {kind.__name__} or a function that makes one, got {given!r}")


def _checked(name: str, made: Any, kind: type[Made]) -> Made:
    if not isinstance(made, kind):
        raise InvalidInput(name, f"expected its maker to return a {kind.__name__}, got {made!r}")
    return made


def _given(logic: Any, base: type, place: int) -> Any:
    """Return the type of what a source or operator gives: its attribute `gives`, or its base's type argument."""
    if (stated := getattr(logic, "gives", None)) is not None:
        return stated
    made = logic if isinstance(logic, type) else type(logic)
    for parent in getattr(made, "__orig_bases__", ()):
        if isinstance(get_origin(parent), type) and issubclass(get_origin(parent), base):
            arguments = get_args(parent)
            if len(arguments) > place and not isinstance(arguments[place], TypeVar):
                return arguments[place]
    return None


def _returned(function: Callable[..., Any]) -> Any:
    """Return a function's annotated return type, where it has one."""
    try:
        return get_type_hints(function).get("return")
    except (TypeError, NameError, AttributeError):
        return None


def _element(kind: Any) -> Any:
    """Return the type of the elements of an iterable's type."""
    arguments = [part for part in get_args(kind) if part is not type(None)]
    if len(arguments) == 1 and get_origin(arguments[0]) is not None and get_origin(kind) not in (list, tuple):
        return _element(arguments[0]) if type(None) in get_args(kind) else arguments[0]
    return arguments[0] if arguments else None
