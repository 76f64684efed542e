"""Penstock's network in NumPy: the encoder, and a decoder that places K times at once.

`penstock.learn.networks` trains it and describes it; both compute the same. Tasks of a component are alike. So all
slots are scored when a component begins, and after each of its tasks only the slots of the machine that received it.
Only tasks with a partner of their own (forward and global streams) are scored everywhere.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import FORWARD, GLOBAL, SPREAD, Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.features import Singles, Tokens, norm_load, slot_memory, tokens
from penstock.policies.placement.learned.room import Room
from penstock.policies.placement.learned.weights import Network

CLIP = 10.0

Placed = NDArray[np.int32]


class Coded(NamedTuple):
    """What the encoder returns; C components, M machines, h numbers each."""

    component: Singles  # [C, h]
    component_pair: Singles
    component_left: Singles
    machine: Singles  # [M, h]
    machine_pair: Singles


def encode(network: Network, view: PlacementView, weight: float) -> Coded:
    """Return what the decoder needs; `weight` is that of throughput in the objective."""
    seen = tokens(view)
    values = np.concatenate([_entry(network, name, own, seen.shared, weight) for name, own in _kinds(seen)])
    relation = _relations(view, seen)
    layer = 0
    while f"layer{layer}.attend" in network.arrays:
        name = f"layer{layer}"
        values = values + _attend(network, name, values, relation)
        inner = normalised(values, network[f"{name}.up.scale"]) @ network[f"{name}.up"] + network[f"{name}.up.bias"]
        values = values + np.maximum(inner, 0) @ network[f"{name}.down"]
        layer += 1
    values = normalised(values, network["out.scale"])
    component, machine = values[: len(seen.component)], values[len(seen.component) :]
    return Coded(
        component @ network["component.score"],
        component @ network["component.pair"],
        component @ network["component.left"],
        machine @ network["machine.score"],
        machine @ network["machine.pair"],
    )


def _kinds(seen: Tokens) -> tuple[tuple[str, Singles], ...]:
    return ("component", seen.component), ("machine", seen.machine)


def _entry(network: Network, name: str, features: Singles, shared: Singles, weight: float) -> Singles:
    every = np.broadcast_to(np.append(shared, np.float32(weight)), (len(features), len(shared) + 1))
    entered: Singles = np.concatenate([features, every], 1) @ network[f"{name}.in"] + network[f"{name}.in.bias"]
    return entered


def normalised(values: Singles, scale: Singles) -> Singles:
    """Scale every token to mean square 1."""
    scaled: Singles = values * scale / np.sqrt((values * values).mean(-1, keepdims=True) + np.float32(1e-6))
    return scaled


def _relations(view: PlacementView, seen: Tokens) -> Singles:
    """Return how tokens are related: downstream, upstream, on the same host. [3, N, N]"""
    host = view.slots.host[view.slots.first[:-1]]
    components = len(seen.component)
    size = components + len(host)
    relation = np.zeros((3, size, size), np.float32)
    relation[0, :components, :components] = seen.down
    relation[1, :components, :components] = seen.down.T
    relation[2, components:, components:] = host[:, None] == host[None, :]
    return relation


def _attend(network: Network, layer: str, values: Singles, relation: Singles) -> Singles:
    bias = network[f"{layer}.relation"]
    heads, (number, width) = bias.shape[1], values.shape
    mixed = normalised(values, network[f"{layer}.attend.scale"]) @ network[f"{layer}.attend"]
    query, key, value = mixed.reshape(number, 3, heads, width // heads).transpose(1, 2, 0, 3)
    logits = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(width / heads))
    logits += np.tensordot(bias.T, relation, 1)
    logits = np.exp(logits - logits.max(-1, keepdims=True))
    logits /= logits.sum(-1, keepdims=True)
    joined: Singles = (logits @ value).transpose(1, 0, 2).reshape(number, width) @ network[f"{layer}.join"]
    return joined


class Groups:
    """Slots by process or by host, for sums over them."""

    def __init__(self, place: Ints) -> None:
        self._order = np.argsort(place, kind="stable")
        _, self._start, self._of = np.unique(place[self._order], return_index=True, return_inverse=True)
        self._back = np.empty_like(self._of)
        self._back[self._order] = self._of

    def total(self, values: Singles) -> Singles:
        """Return for each slot the sum over its group. [K, S]"""
        summed: Singles = np.add.reduceat(values[:, self._order], self._start, axis=1)[:, self._back]
        return summed


class Neighbours:
    """How much a task exchanges with tasks in each slot, in K placements."""

    def __init__(self, view: PlacementView, rows: int) -> None:
        tasks = view.tasks
        self._tasks, self._gain = tasks, tasks.gain.astype(np.float32)
        shape = (len(tasks.position), rows, view.slots.number)
        self.count = np.zeros(shape, np.float32)  # tasks of a component in a slot
        self._sent = np.zeros(shape, np.float32)  # tuples that they process
        self._row = np.arange(rows)
        self._out = [[flow for flow in tasks.flows if flow.source == c] for c in range(len(tasks.position))]
        self._in = [[flow for flow in tasks.flows if flow.target == c] for c in range(len(tasks.position))]

    def put(self, task: int, slots: Placed) -> None:
        """Count a task in a slot of each placement [K]."""
        component = self._tasks.component[task]
        self.count[component, self._row, slots] += 1
        self._sent[component, self._row, slots] += self._gain[task]

    def alike(self, component: int) -> bool:
        """Whether all tasks of a component have the same neighbours and the same input."""
        every = [*self._out[component], *self._in[component]]
        gain = self._gain[self._tasks.first[component] : self._tasks.first[component + 1]]
        own = any(flow.heard == FORWARD for flow in every) or any(f.heard == GLOBAL for f in self._in[component])
        return not own and bool((gain == gain[0]).all())

    def of(self, task: int, placed: Placed) -> Singles:
        """Return the part of a task's tuples that it exchanges with each slot, so far. [K, S]"""
        component, tasks = int(self._tasks.component[task]), self._tasks
        number, gain = task - int(tasks.first[component]), self._gain[task]
        near, total = np.zeros(self.count.shape[1:], np.float32), 0.0
        for flow in self._out[component]:
            to = int(tasks.first[flow.target])
            amount = gain * flow.share
            if flow.heard == SPREAD:
                near += np.float32(amount) * self.count[flow.target]
                total += amount * len(tasks.of(flow.target))
            else:
                self._partner(near, to + number if flow.heard == FORWARD else to, amount, placed)
                total += amount
        for flow in self._in[component]:
            first = int(tasks.first[flow.source])
            if flow.heard == FORWARD:
                amount = self._gain[first + number] * flow.share
                self._partner(near, first + number, amount, placed)
                total += amount
            elif flow.heard == SPREAD or number == 0:
                near += np.float32(flow.share) * self._sent[flow.source]
                total += float(self._gain[first : int(tasks.first[flow.source + 1])].sum()) * flow.share
        part: Singles = np.divide(near, total if total > 0 else 1.0, dtype=np.float32)
        return part

    def _partner(self, near: Singles, partner: int, amount: float, placed: Placed) -> None:
        slots = placed[:, partner]
        if slots[0] >= 0:
            near[self._row, slots] += np.float32(amount)


class Around(NamedTuple):
    """What slots have for the tasks of a component, whatever is there."""

    static: Singles  # [S, h]
    near: Singles  # [K, S] part of its tuples that a task exchanges with the slot
    by_process: Singles  # with the slot's process
    by_host: Singles


class Decoder:
    """Places the tasks of a view K times; the first time greedily, the others at random."""

    def __init__(self, network: Network, view: PlacementView, weight: float, rows: int) -> None:
        self._view, self._rows = view, rows
        slots = view.slots
        self._network, self._coded = network, encode(network, view, weight)
        self._norm = norm_load(view)
        self._work = (view.work * self._norm).astype(np.float32)
        self._task_memory = view.tasks.memory_mb.astype(np.float64)
        self._mean_memory = float(slot_memory(view).mean())
        self._per_slot = np.float32(view.tasks.number / slots.number)
        self._cpu = slots.cpu.astype(np.float32)
        every = np.add.reduceat(slots.cpu, slots.first[:-1])
        self._machine_cpu = np.minimum(every, slots.machine_cpu).astype(np.float32)
        self._processes, self._hosts = Groups(slots.process), Groups(slots.host)
        self._widest = int(np.diff(slots.first).max())
        self._row = np.arange(rows)
        self._begin(len(network["slot.out"]))

    def _begin(self, hidden: int) -> None:
        view, rows = self._view, self._rows
        shape = (rows, view.slots.number)
        self._load, self._count = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._machine_load = np.zeros((rows, view.slots.machines), np.float32)
        self._left = np.zeros((*shape, hidden), np.float32)
        self.room = Room(view, rows)
        self._neighbours = Neighbours(view, rows)

    def run(self, rng: np.random.Generator) -> None:
        """Place all tasks, the pinned ones first, in `room`."""
        order = np.argsort(self._view.pins < 0, kind="stable").tolist()
        component, scores = -1, np.empty(0, np.float32)
        for task, after in zip(order, [*order[1:], -1], strict=True):
            if self._view.tasks.component[task] != component:
                component = int(self._view.tasks.component[task])
                alike, around = self._neighbours.alike(component), self._around(task)
                scores = self._scores(task, around, None)
            slot = self.room.choose(task, scores, rng)
            self._put(task, component, slot)
            if after < 0 or self._view.tasks.component[after] != component:
                continue
            if alike:
                touched = self._touched(slot)
                scores[self._row[:, None], touched] = self._scores(after, around, touched)
            else:
                around = self._around(after)
                scores = self._scores(after, around, None)

    def _around(self, task: int) -> Around:
        near = self._neighbours.of(task, self.room.placed)
        static = self._static(int(self._view.tasks.component[task]))
        return Around(static, near, self._processes.total(near), self._hosts.total(near))

    def _static(self, component: int) -> Singles:
        coded = self._coded
        static = coded.component[component] + coded.machine + coded.component_pair[component] * coded.machine_pair
        by_slot: Singles = (static + self._network["slot.in.bias"])[self._view.slots.machine]
        return by_slot

    def _touched(self, slot: Placed) -> NDArray[np.int64]:
        """Return the slots of the machine of each placement's slot, some of them repeatedly. [K, W]"""
        slots = self._view.slots
        machine = slots.machine[slot]
        first, last = slots.first[machine], slots.first[machine + 1] - 1
        touched: NDArray[np.int64] = np.minimum(first[:, None] + np.arange(self._widest), last[:, None])
        return touched

    def _scores(self, task: int, around: Around, slots: NDArray[np.int64] | None) -> Singles:
        """Return the scores of all slots for a task, or of some. [K, S]"""
        where = self._view.slots.machine if slots is None else self._view.slots.machine[slots]
        row = self._row[:, None]

        def of(values: Singles) -> Singles:
            return values if slots is None else values[row, slots]

        cpu = self._cpu if slots is None else self._cpu[slots]
        work, memory = self._work[task], self._task_memory[task]
        load = of(self._load)
        machine_load = self._machine_load[row, where]
        slot_free = self.room.free if slots is None else self.room.free[row, slots]
        free = np.minimum(slot_free, self.room.machine_free[row, where])
        component = int(self._view.tasks.component[task])
        after = (load + work) / cpu
        seen = np.empty((*load.shape, 12), np.float32)
        seen[..., 0] = load / cpu
        seen[..., 1] = after
        seen[..., 2] = after - 1.0
        seen[..., 3] = (machine_load + work) / self._machine_cpu[where]
        seen[..., 4] = np.minimum(free / self._mean_memory, 4.0)
        seen[..., 5] = np.minimum(memory / np.maximum(free, 1e-6), 1.0)
        seen[..., 6] = of(around.near)
        seen[..., 7] = of(around.by_process)
        seen[..., 8] = of(around.by_host)
        seen[..., 9] = of(self._neighbours.count[component]) / np.float32(len(self._view.tasks.of(component)))
        seen[..., 10] = of(self._count) / (self._per_slot * np.float32(4.0))
        seen[..., 11] = np.minimum(work / cpu, 8.0)
        np.clip(seen, 0.0, 20.0, out=seen)
        network = self._network
        hidden = seen @ network["slot.in"]
        hidden += around.static if slots is None else around.static[slots]
        hidden += of(self._left)
        np.maximum(hidden, 0, out=hidden)
        hidden = hidden @ network["slot.hidden"]
        hidden += network["slot.hidden.bias"]
        np.maximum(hidden, 0, out=hidden)
        scores: Singles = CLIP * np.tanh((hidden @ network["slot.out"])[..., 0])
        return scores

    def _put(self, task: int, component: int, slot: Placed) -> None:
        at, machine = (self._row, slot), self._view.slots.machine[slot]
        self._load[at] += self._work[task]
        self._count[at] += 1
        self._left[at] += self._coded.component_left[component] / self._per_slot
        self._machine_load[self._row, machine] += self._work[task]
        self._neighbours.put(task, slot)


def weight_of(objective: str) -> float:
    """Return the weight of throughput that suits an objective: TATA's for those with both."""
    return {"throughput": 1.0, "delay": 0.0, "traffic": 0.0}.get(objective, 0.8)
