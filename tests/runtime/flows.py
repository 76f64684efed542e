"""Applications for tests of the runtime: words counted, ways that keep order, and random ones with their evaluation.

A random application is drawn first as a plain drawing of components and streams, which is both built as a dataflow and
evaluated without one. Every tuple carries a whole number, dressed as the stream's kind of tuple, so that what must come
out does not depend on which task a tuple went to.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from penstock.api.contracts import Operator, Source, TaskContext
from penstock.api.dataflow import Dataflow, Outlet
from penstock.model.telemetry import REQUIRED, Record, RecordKind
from penstock.model.topology import Grouping
from penstock.runtime.controller.operations import CannotMove
from penstock.testing import Captured, Result, TestCluster


class Given(Source[Any]):
    """The values of a list, task k beginning at the k-th and skipping the others', a few a poll."""

    rewinds = True

    def __init__(self, values: Sequence[Any], most: int = 7) -> None:
        self.values = values
        self.most = most

    def open(self, context: TaskContext) -> None:
        self.at, self.tasks = context.task, context.tasks

    def poll(self, now: float, limit: int) -> list[Any] | None:
        if self.at >= len(self.values):
            return None
        count = min(limit, 1 + self.at % self.most)
        given = list(self.values[self.at : self.at + count * self.tasks : self.tasks])
        self.at += len(given) * self.tasks
        return given

    def position(self) -> int:
        return self.at

    def seek(self, position: int) -> None:
        self.at = position


class Count(Operator[str, tuple[str, int]]):
    """How often each word has come so far."""

    def open(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = {}

    def process(self, value: str) -> Iterator[tuple[str, int]]:
        self.counts[value] = self.counts.get(value, 0) + 1
        yield value, self.counts[value]

    def snapshot(self) -> dict[str, int]:
        return self.counts

    def restore(self, state: dict[str, int]) -> None:
        self.counts = state


def split(sentence: str) -> list[str]:
    return sentence.split()


def sentences(count: int) -> list[str]:
    return [f"w{number % 7} w{number % 11} x" for number in range(count)]


def word_count(count: int, cpu: float = 1e-4, most: int = 7) -> Dataflow:
    """Return an application that counts the words of sentences, given their number and the maximum per poll."""
    flow = Dataflow("word-count")
    lines = flow.source("lines", Given(sentences(count), most), parallelism=2, cpu=cpu, emits=str)
    words = flow.flat_map("split", split, lines, parallelism=3, cpu=cpu)
    counts = flow.operator("count", Count, words.fields(), parallelism=3, cpu=cpu)
    flow.sink("out", Captured([]), counts, cpu=cpu / 10)
    return flow


def check_counts(taken: list[tuple[str, int]], count: int) -> None:
    """Every word is counted up from 1, one by one, to how often it is in the sentences."""
    found: dict[str, int] = {}
    for word, number in taken:
        assert number == found.get(word, 0) + 1, f"{word} went from {found.get(word, 0)} to {number}"
        found[word] = number
    assert found == Counter(word for sentence in sentences(count) for word in sentence.split())


class Ascending(Operator[tuple[str, int], tuple[str, int]]):
    """Passes numbers on, and raises where those of a key do not ascend."""

    def open(self, context: TaskContext) -> None:
        self.last: dict[str, int] = {}

    def process(self, value: tuple[str, int]) -> Iterable[tuple[str, int]]:
        key, number = value
        if number <= self.last.get(key, -1):
            raise ValueError(f"{key}: {number} came after {self.last[key]}")
        self.last[key] = number
        return (value,)

    def snapshot(self) -> dict[str, int]:
        return self.last

    def restore(self, state: dict[str, int]) -> None:
        self.last = state


def ordered(count: int, cpu: float = 1e-4, most: int = 7) -> Dataflow:
    """Return an application in which the numbers of each key, all from one source task, come by one way."""
    flow = Dataflow("ordered")
    pairs = [(f"k{number % 2}-{number % 6}", number) for number in range(count)]
    numbers = flow.source("numbers", Given(pairs, most), parallelism=2, cpu=cpu, emits=tuple[str, int])
    kept = flow.filter("keep", bool, numbers.forward(), parallelism=2, cpu=cpu)
    checked = flow.operator("check", Ascending, kept.fields(0), parallelism=3, cpu=cpu)
    again = flow.operator("again", Ascending, checked.fields(0), parallelism=2, cpu=cpu)
    flow.sink("out", Captured([]), again.to_first(), parallelism=1, cpu=cpu / 10)
    return flow


class Word(msgspec.Struct, frozen=True):
    key: str
    number: int


def number_of(value: Any) -> int:
    """Return the number that a tuple of any kind carries, before or after it has travelled."""
    if isinstance(value, str | bytes):
        return int(value[1:])
    if isinstance(value, tuple | list):
        return int(value[1])
    if isinstance(value, dict):
        return int(value["number"])
    return value.number if isinstance(value, Word) else int(value)


KEYS = 5
KINDS: dict[str, tuple[Any, Callable[[int], Any]]] = {  # the type declared, and how a number is dressed
    "int": (int, int),
    "str": (str, lambda n: f"k{n}"),
    "bytes": (bytes, lambda n: f"k{n}".encode()),
    "tuple": (tuple[str, int], lambda n: (f"k{n % KEYS}", n)),
    "struct": (Word, lambda n: Word(f"k{n % KEYS}", n)),
    "dict": (Any, lambda n: {"number": n, "parts": [n, None]}),
    "list": (Any, lambda n: (f"k{n % KEYS}", n)),  # arrives as a list, as no type is declared
}
STATEFUL = (Grouping.FIELDS, Grouping.GLOBAL, Grouping.ALL)


@dataclass
class Node:
    """A component as it is drawn."""

    name: str
    does: str  # source, map, flat_map, filter, count, split, sink
    parallelism: int
    kinds: dict[str | None, str]  # of each output
    constant: int
    numbers: list[int] = field(default_factory=list)  # a source's
    inputs: "list[Edge]" = field(default_factory=list)
    direct: dict[str | None, int] = field(default_factory=dict)  # outputs that name the task: how many there are


@dataclass
class Edge:
    """A stream as it is drawn."""

    source: Node
    output: str | None
    grouping: Grouping


def draw(seed: int) -> list[Node]:
    """Draw a random application: components in an order in which each comes after those that feed it."""
    rng = random.Random(seed)
    does = ["source"] * rng.randint(1, 2)
    does += rng.choices(["map", "flat_map", "filter", "count", "split"], k=rng.randint(1, 4))
    does += ["sink"] * rng.randint(1, 2)
    nodes: list[Node] = []
    for place, what in enumerate(does):
        outputs: list[str | None] = ["a", "b"] if what == "split" else [None]
        kinds = {output: rng.choice(list(KINDS)) for output in outputs}
        node = Node(f"c{place}-{what.replace('_', '-')}", what, rng.randint(1, 3), kinds, rng.randint(2, 9))
        if what == "source":
            node.numbers = [rng.randrange(1000) for _ in range(rng.randint(20, 60))]
        else:
            _connect(rng, node, [earlier for earlier in nodes if earlier.does not in ("sink", "source")] + nodes[:2])
        nodes.append(node)
    for node in nodes:  # what feeds nobody feeds the last sink
        if node.does != "sink" and not any(edge.source is node for other in nodes for edge in other.inputs):
            nodes[-1].inputs.append(Edge(node, rng.choice(list(node.kinds)), Grouping.SHUFFLE))
    _group(rng, nodes)
    return nodes


def _connect(rng: random.Random, node: Node, before: list[Node]) -> None:
    most = 1 if node.does in ("filter", "count") else 2
    able = {one.name: one for one in before if one.does != "sink"}
    for source in rng.sample(list(able.values()), min(len(able), rng.randint(1, most))):
        node.inputs.append(Edge(source, rng.choice(list(source.kinds)), Grouping.SHUFFLE))
    if node.does == "filter":  # it passes on what it gets
        node.kinds = {None: node.inputs[0].source.kinds[node.inputs[0].output]}


def _group(rng: random.Random, nodes: list[Node]) -> None:
    edges = [edge for node in nodes for edge in node.inputs]
    for node in nodes:
        for edge in node.inputs:
            alone = sum(one.source is edge.source and one.output == edge.output for one in edges) == 1
            able = [one for one in Grouping if one is not Grouping.DIRECT or (alone and edge.source.does != "filter")]
            if edge.source.parallelism != node.parallelism:
                able.remove(Grouping.FORWARD)
            edge.grouping = rng.choice([one for one in able if node.does != "count" or one in STATEFUL])
            if edge.grouping is Grouping.DIRECT:
                edge.source.direct[edge.output] = node.parallelism


def follow(node: Node, number: int) -> list[tuple[str | None, int]]:
    """Return the outputs and numbers that follow from a number at a component without state."""
    constant = node.constant
    match node.does:
        case "map":
            return [(None, (number * constant + 1) % 10_007)]
        case "flat_map":
            return [(None, number + place) for place in range(number % 3)]
        case "filter":
            return [(None, number)] if number % constant else []
        case "split":
            return [("a", number)] if number % 2 else [("b", number), ("a", number + constant)]
    return [(None, number)]


def evaluate(nodes: list[Node]) -> dict[str, Counter[str]]:
    """Return what each sink must take, written out: how often, in any order."""
    sent: dict[tuple[str, str | None], Counter[int]] = {}
    taken: dict[str, Counter[str]] = {}
    for node in nodes:
        came: Counter[int] = Counter(node.numbers)
        shown: Counter[str] = Counter()
        for edge in node.inputs:
            copies = node.parallelism if edge.grouping is Grouping.ALL else 1
            for number, count in sent[edge.source.name, edge.output].items():
                came[number] += count * copies
                shown[repr(_travelled(edge.source.kinds[edge.output], number))] += count * copies
        if node.does == "sink":
            taken[node.name] = shown
            continue
        emits = _counted(node, came) if node.does == "count" else _followed(node, came)
        for output in node.kinds:
            sent[node.name, output] = emits.get(output, Counter())
    return taken


def _travelled(kind: str, number: int) -> Any:
    value = KINDS[kind][1](number)
    return list(value) if kind == "list" else value


def _followed(node: Node, came: Counter[int]) -> dict[str | None, Counter[int]]:
    emits: dict[str | None, Counter[int]] = {}
    for number, count in came.items():
        for output, follows in follow(node, number):
            emits.setdefault(output, Counter())[follows] += count
    return emits


def _counted(node: Node, came: Counter[int]) -> dict[str | None, Counter[int]]:
    copies = node.parallelism if node.inputs[0].grouping is Grouping.ALL else 1
    totals: Counter[int] = Counter()
    for number, count in came.items():
        totals[number % KEYS] += count // copies
    counter = Counting(node.constant)
    emits: Counter[int] = Counter()
    for key, total in totals.items():
        emits.update(follows for _ in range(total) for follows in counter.count(key))
    emits.update(counter.totals())
    return {None: Counter({number: count * copies for number, count in emits.items()})}


class Counting:
    """What a counter does: a number for each that comes, and at the end one for each key."""

    def __init__(self, constant: int) -> None:
        self.constant = constant
        self.counts: dict[int, int] = {}

    def count(self, key: int) -> list[int]:
        self.counts[key] = self.counts.get(key, 0) + 1
        return [10_000 * key + self.counts[key]]

    def totals(self) -> list[int]:
        return [10_000 * key + self.constant * count for key, count in self.counts.items()]


class Dressed(Operator[Any, Any]):
    """A component as an operator: what follows from a number, dressed as its outputs want it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def process(self, value: Any) -> Iterator[Any]:
        for output, number in follow(self.node, number_of(value)):
            yield dressed(self.node, output, number)


class DressedCount(Operator[Any, Any]):
    """A counter as an operator with state that moves."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.counting = Counting(node.constant)

    def process(self, value: Any) -> list[Any]:
        return [dressed(self.node, None, number) for number in self.counting.count(number_of(value) % KEYS)]

    def finish(self) -> list[Any]:
        return [dressed(self.node, None, number) for number in self.counting.totals()]

    def snapshot(self) -> dict[int, int]:
        return self.counting.counts

    def restore(self, state: dict[int, int]) -> None:
        self.counting.counts = state


def dressed(node: Node, output: str | None, number: int) -> Any:
    """Return a number as a component emits it."""
    value = KINDS[node.kinds[output]][1](number)
    if output in node.direct:
        value = (number % node.direct[output], value)
    return value if output is None else (output, value)


def key_of(value: Any) -> int:
    return number_of(value) % KEYS


def build(nodes: list[Node], cpu: float = 1e-4) -> Dataflow:
    """Build the dataflow of a drawing."""
    flow = Dataflow("random")
    outlets: dict[str, Outlet] = {}
    for node in nodes:
        inputs = [_grouped(outlets[edge.source.name], edge) for edge in node.inputs]
        costs: dict[str, Any] = {"parallelism": node.parallelism, "cpu": cpu * node.constant}
        declared = {output: KINDS[kind][0] for output, kind in node.kinds.items()}
        emits: Any = declared.get(None, declared)
        if node.does == "sink":
            flow.sink(node.name, Captured([]), *inputs, **costs)
        elif node.does == "source":
            values = [dressed(node, None, number) for number in node.numbers]
            outlets[node.name] = flow.source(node.name, Given(values), emits=emits, **costs)
        elif node.does == "filter":
            passes = partial(_passes, node)
            outlets[node.name] = flow.filter(node.name, passes, *inputs, **costs)
        elif node.does == "map" and not node.direct:
            dress = partial(_mapped, node)
            outlets[node.name] = flow.map(node.name, dress, *inputs, emits=emits, **costs)
        else:
            made = DressedCount if node.does == "count" else Dressed
            outputs = ("a", "b") if node.does == "split" else ()
            outlets[node.name] = flow.operator(
                node.name, partial(made, node), *inputs, emits=emits, outputs=outputs, **costs
            )
    return flow


def _passes(node: Node, value: Any) -> bool:
    return bool(follow(node, number_of(value)))


def _mapped(node: Node, value: Any) -> Any:
    return dressed(node, None, follow(node, number_of(value))[0][1])


def _grouped(outlet: Outlet, edge: Edge) -> Outlet:
    outlet = outlet if edge.output is None else outlet[edge.output]
    kind = edge.source.kinds[edge.output]
    keys: tuple[Any, ...] = {"tuple": (0,), "struct": ("key",), "list": (0,)}.get(kind, (key_of,))
    match edge.grouping:
        case Grouping.FIELDS:
            return outlet.fields(*keys)
        case Grouping.PARTIAL_KEY:
            return outlet.partial_key(*keys)
        case Grouping.ALL:
            return outlet.all()
        case Grouping.GLOBAL:
            return outlet.to_first()
        case Grouping.DIRECT:
            return outlet.direct()
        case Grouping.FORWARD:
            return outlet.forward()
        case Grouping.LOCAL_OR_SHUFFLE:
            return outlet.local_or_shuffle()
    return outlet


def move_about(cluster: TestCluster, moves: int, seed: int, pause: float = 0.0) -> int:
    """Move random tasks at random times, up to a number of moves or until the end; return the number of moves.

    pause: the most seconds between two moves, for a cluster that needs time for its work.
    """
    rng = random.Random(seed)
    slots = [slot for site in cluster.controller.spec.sites for slot in site.slots]
    for done in range(moves):
        for _ in range(rng.randrange(20)):
            cluster.step()
        if pause:
            cluster.advance(pause * rng.random())
        if cluster.controller.phase != "running":
            return done
        try:
            cluster.move(rng.choice(cluster.layout.names), rng.choice(slots))
        except CannotMove:
            assert cluster.controller.phase == "stopped"
            return done
    return moves


def of_kind(records: Iterable[Record], kind: RecordKind) -> list[Record]:
    return [record for record in records if record.kind == kind]


def check_telemetry(result: Result) -> None:
    """Records have what their kinds require; every sampled tree is complete, and each hop follows from another."""
    for record in result.records:
        assert all(getattr(record, name) is not None for name in REQUIRED[record.kind]), record
    roots = {record.root for record in of_kind(result.records, RecordKind.ROOT)}
    hops = of_kind(result.records, RecordKind.HOP)
    done = of_kind(result.records, RecordKind.DONE)
    known = roots | {hop.id for hop in hops}
    assert len(known) == len(roots) + len(hops)
    assert all(hop.parent in known and hop.root in roots for hop in hops)
    assert {record.root for record in done} == roots
    assert len(done) == len(roots)
    assert all(record.finished >= record.due for record in done)  # type: ignore[operator]
    for hop in hops:
        assert hop.emitted <= hop.sent <= hop.arrived <= hop.started <= hop.finished  # type: ignore[operator]
    assert result.status.timed_out == 0
