"""Virtual network embedding by topology-aware node ranking (Cheng et al., 2011), SPARCLE's baseline VNE.

A node's rank is higher next to nodes of high rank, as in PageRank: its NodeRank is the share of time that a random
walker spends there who jumps anywhere or moves along a link, always in proportion to H = cpu × bandwidth of the
adjacent links. Machines and the application's components are ranked alike, a component by the needs of one of its
tasks, and matched from high to low. Switches forward the walker and have no rank; on a full mesh all machines are
neighbours and the network card is the only link.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.model.entity import Count, Positive, Probability
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Floats, Ints, sum_by
from penstock.policies.api import PlacementView
from penstock.policies.placement.affinity import task_traffic
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.rearrangement import make_room

RANK_DIGITS = 12  # smaller differences between ranks are rounding


class Arcs(NamedTuple):
    """Arcs on which the walker moves."""

    tail: Ints  # [A] from
    head: Ints  # [A] to


@dataclass(frozen=True, slots=True)
class NodeRanking:
    """Match tasks and machines in the order of their NodeRank.

    Pinned tasks are placed first and do not count. Every other task, in descending rank, goes to the machine with room
    that has received the fewest of them so far, ties by highest rank.

    jump: probability that the walker jumps to any node instead of moving on to a neighbour.
    tolerance: the walk ends when the ranks, whose sum is 1, change by less in total.
    rounds: maximum number of steps.
    """

    jump: Probability = 0.15
    tolerance: Positive = 1e-12
    rounds: Count = 10_000

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        task_rank = self._rank(*components_of(view))[view.tasks.component]
        best_machine_first = np.argsort(-self._rank(*machines_of(view)), kind="stable")
        draft = Draft(view)
        turn = np.empty(view.slots.machines, dtype=np.int64)  # the machine's next turn: round × machines + position
        turn[best_machine_first] = np.arange(view.slots.machines)
        free = np.flatnonzero(view.pins < 0)
        if (stuck := draft.put_pinned()) is not None:
            return make_room(draft, stuck)
        for task in free[np.argsort(-task_rank[free], kind="stable")].tolist():
            room = draft.machines_with_room(task)
            if not room.any():
                return make_room(draft, task)
            machine = int(np.argmin(np.where(room, turn, np.iinfo(np.int64).max)))
            draft.put_on(task, machine)
            turn[machine] += len(turn)
        return draft.done()

    def _rank(self, strength: Floats, arcs: Arcs | None) -> Floats:
        return np.round(node_rank(strength, arcs, self.jump, self.tolerance, self.rounds), RANK_DIGITS)


def node_rank(strength: Floats, arcs: Arcs | None, jump: float, tolerance: float, rounds: int) -> Floats:
    """Return the share of time that the walker spends at every node, by power iteration; no arcs: all are neighbours.

    From a node whose neighbours all have strength 0, the walker jumps.
    """
    total = float(strength.sum())
    if total == 0:
        return np.full(len(strength), 1 / len(strength))
    around = _add_up(strength, arcs)
    moves = np.where(around > 0, 1 - jump, 0.0)
    onward = np.divide(moves, around, out=np.zeros_like(moves), where=around > 0)
    back = None if arcs is None else Arcs(arcs.head, arcs.tail)
    rank = strength / total
    for _ in range(rounds):
        before = rank
        rank = strength * ((before @ (1 - moves)) / total + _add_up(before * onward, back))
        if np.abs(rank - before).sum() < tolerance:
            break
    return rank


def _add_up(amount: Floats, arcs: Arcs | None) -> Floats:
    """Return for every node the sum over the nodes to which its arcs lead."""
    return amount.sum() - amount if arcs is None else sum_by(arcs.tail, amount[arcs.head], len(amount))


def components_of(view: PlacementView) -> tuple[Floats, Arcs]:
    """Return H of a task of each component, and the streams in both directions."""
    tasks = view.tasks
    width = np.diff(tasks.first)
    cpu = np.add.reduceat(view.work, tasks.first[:-1]) / width
    bandwidth = np.add.reduceat(task_traffic(view), tasks.first[:-1]) / width
    source = np.array([flow.source for flow in tasks.flows], dtype=np.int32)
    target = np.array([flow.target for flow in tasks.flows], dtype=np.int32)
    return cpu * bandwidth, Arcs(np.concatenate([source, target]), np.concatenate([target, source]))


def machines_of(view: PlacementView) -> tuple[Floats, Arcs | None]:
    """Return H of each machine, and the arcs between machines; none on a full mesh."""
    slots = view.slots
    if not view.cluster.routed:
        card = slots.machine_network.mean(axis=0)  # of both directions
        known = np.isfinite(card)
        fastest = card[known].max(initial=1.0)  # an unknown card is no limit
        return slots.machine_cpu * np.where(known, card, fastest), None
    bandwidth = np.zeros(view.links.nodes)
    for link in view.cluster.links:
        for end in (link.source, link.target):
            bandwidth[view.cluster.node_index[end]] += link.bandwidth_mbps
    return slots.machine_cpu * bandwidth[: slots.machines], _next_machines(view)


def _next_machines(view: PlacementView) -> Arcs:
    """Return the arcs between machines that links join directly or through switches only."""
    links, machines = view.links, view.slots.machines
    found: list[set[int]] = [set() for _ in range(machines)]
    for machine in range(machines):
        waiting, seen = [machine], {machine}
        while waiting:
            node = waiting.pop()
            arcs = slice(links.start[node], links.start[node + 1])
            heads = set(links.head[arcs][links.bandwidth[links.link[arcs]] > 0].tolist()) - seen
            seen |= heads
            found[machine] |= {head for head in heads if head < machines}
            waiting += [head for head in heads if head >= machines]
    pairs = [(tail, head) for tail in range(machines) for head in sorted(found[tail])]
    table = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return Arcs(table[:, 0], table[:, 1])
