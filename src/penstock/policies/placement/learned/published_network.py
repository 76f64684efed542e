"""TATA's network in NumPy, and that of Ni et al.; `penstock.learn.published` trains them and describes them.

Sums over neighbours are computed by component and by distance, not by pair of tasks or slots.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import FORWARD, GLOBAL, Flow, Tasks
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.features import Singles
from penstock.policies.placement.learned.network import CLIP, Groups
from penstock.policies.placement.learned.room import NEVER, Room
from penstock.policies.placement.learned.weights import Network

Placed = NDArray[np.int32]

CPU, MEMORY_MB = (3.5, 1.7), (144.0, 65.0)  # mean and deviation, as in the training
SLOT_CPU, SLOT_MEMORY_MB = (30.0, 6.0), (1536.0, 296.0)
DELAY_MS = (3.0, 1.3)
MOST_MEMORY_MB = 1e4


def _dense(network: Network, name: str, values: Singles) -> Singles:
    dense: Singles = np.maximum(values @ network[name] + network[f"{name}.bias"], 0)
    return dense


def _features(first: NDArray[np.float64], second: NDArray[np.float64], *of: tuple[float, float]) -> Singles:
    columns = [(values - mean) / deviation for values, (mean, deviation) in zip((first, second), of, strict=True)]
    return np.stack(columns, axis=-1).astype(np.float32)


def encode_tasks(network: Network, tasks: Tasks) -> Singles:
    """Return the embeddings of tasks (1). [T, d]"""
    values = _features(tasks.cpu, tasks.memory_mb, CPU, MEMORY_MB)
    step = 0
    while f"task{step}.up.each" in network.arrays:
        views = []
        for side in ("up", "down"):
            each = _dense(network, f"task{step}.{side}.each", values)
            joined = np.concatenate([values, _neighbour_mean(tasks, each, up=side == "up")], axis=1)
            views.append(_dense(network, f"task{step}.{side}.join", joined))
        values = np.concatenate(views, axis=1)
        step += 1
    return values


def _neighbour_mean(tasks: Tasks, each: Singles, up: bool) -> Singles:
    """Return the mean over each task's upstream or downstream tasks. [T, d]"""
    total, number = np.zeros_like(each), np.zeros((len(each), 1), np.float32)
    for flow in tasks.flows:
        own, other = (flow.target, flow.source) if up else (flow.source, flow.target)
        mine, theirs = (slice(tasks.first[c], tasks.first[c + 1]) for c in (own, other))
        if flow.heard == GLOBAL and up:
            mine = slice(mine.start, mine.start + 1)
        elif flow.heard == GLOBAL:
            theirs = slice(theirs.start, theirs.start + 1)
        pairwise = flow.heard == FORWARD
        total[mine] += each[theirs] if pairwise else each[theirs].sum(axis=0)
        number[mine] += 1 if pairwise else theirs.stop - theirs.start
    mean: Singles = np.divide(total, np.maximum(number, 1), dtype=np.float32)
    return mean


def encode_slots(network: Network, view: PlacementView) -> Singles:
    """Return the embeddings of slots (2), (3), or of their numbers. [S, d]"""
    slots = view.slots
    if "slot.number" in network.arrays:
        table = network["slot.number"]
        return table[np.minimum(np.arange(slots.number), len(table) - 1)]
    values = _features(slots.cpu, np.minimum(slots.memory_mb, MOST_MEMORY_MB), SLOT_CPU, SLOT_MEMORY_MB)
    delay = ((slots.delay_ms - DELAY_MS[0]) / DELAY_MS[1]).astype(np.float32)
    processes, hosts = Groups(slots.process), Groups(slots.host)
    step = 0
    while f"slot{step}.each" in network.arrays:
        weight = network[f"slot{step}.each"]
        own = values @ weight[:-1] + network[f"slot{step}.each.bias"]
        _, process, host, far = (np.maximum(own + distance * weight[-1], 0) for distance in delay)
        total = far.sum(axis=0) + hosts.total((host - far).T).T + processes.total((process - host).T).T - process
        mean = total / max(slots.number - 1, 1)
        values = _dense(network, f"slot{step}.join", np.concatenate([values, mean], axis=1))
        step += 1
    return values


class PublishedDecoder:
    """Places the tasks of a view K times; the first time greedily, the others at random.

    Slots without room are left out, which the training as published does not do.
    """

    def __init__(self, network: Network, view: PlacementView, rows: int) -> None:
        self._network, self._tasks = network, view.tasks
        self.room = Room(view, rows)
        self._coded, self._slots = encode_tasks(network, view.tasks), encode_slots(network, view)
        self._keys = (self._slots @ network["key"]).T
        self._pins = view.pins
        self._known = len(network["slot.number"]) if "slot.number" in network.arrays else view.slots.number
        self._sum = np.zeros((len(view.tasks.position), rows, self._slots.shape[1]), np.float32)
        graph = _dense(network, "graph", self._coded).max(axis=0)
        self._hidden = np.broadcast_to(graph, (rows, len(graph))).copy()
        self._in = [[flow for flow in view.tasks.flows if flow.target == c] for c in range(len(view.tasks.position))]

    def run(self, rng: np.random.Generator) -> None:
        """Place all tasks, the pinned ones first, in `room`."""
        width = np.float32(np.sqrt(self._keys.shape[0]))
        for task in np.argsort(self._pins < 0, kind="stable").tolist():
            self._hidden = self._gru(self._coded[task] + self._above(task))
            attention = self._hidden @ self._coded.T
            attention = np.exp(attention - attention.max(axis=1, keepdims=True))
            attention /= attention.sum(axis=1, keepdims=True)
            query = np.concatenate([self._hidden, attention @ self._coded], axis=1) @ self._network["query"]
            scores: Singles = np.multiply(CLIP, np.tanh(query @ self._keys / width), dtype=np.float32)
            if self._pins[task] < 0:
                scores[:, self._known :] = NEVER / 2  # slots that it does not know, if no other has room
            slot = self.room.choose(task, scores, rng)
            self._sum[self._tasks.component[task]] += self._slots[slot]

    def _above(self, task: int) -> Singles:
        """Return the mean embedding of the slots of the task's upstream tasks. [K, d]"""
        component = int(self._tasks.component[task])
        number = task - int(self._tasks.first[component])
        total, count = np.zeros_like(self._hidden), 0
        for flow in self._in[component]:
            total += self._placed(flow, number)
            count += _senders(self._tasks, flow, number)
        mean: Singles = np.divide(total, max(count, 1), dtype=np.float32)
        return mean

    def _placed(self, flow: Flow, number: int) -> Singles:
        if flow.heard == FORWARD:
            slots = self.room.placed[:, int(self._tasks.first[flow.source]) + number]
            return np.where(slots[:, None] >= 0, self._slots[slots], 0)
        return self._sum[flow.source] if flow.heard != GLOBAL or number == 0 else np.zeros_like(self._hidden)

    def _gru(self, values: Singles) -> Singles:
        network, state = self._network, self._hidden
        update, reset, new = np.split(values @ network["gru.input"] + network["gru.input.bias"], 3, axis=1)
        old_update, old_reset, old_new = np.split(state @ network["gru.state"] + network["gru.state.bias"], 3, axis=1)
        keep = 1 / (1 + np.exp(-(update + old_update)))
        fresh = np.tanh(new + old_new / (1 + np.exp(-(reset + old_reset))))
        following: Singles = keep * state + (1 - keep) * fresh
        return following


def _senders(tasks: Tasks, flow: Flow, number: int) -> int:
    """Return the number of tasks from which a task gets a stream."""
    if flow.heard == FORWARD:
        return 1
    return len(tasks.of(flow.source)) if flow.heard != GLOBAL or number == 0 else 0
