"""Throughput and delay of a placement by letting tuples flow until back-pressure has settled (TATA, Algorithm 1).

The algorithm as printed does not run; this is its working form. Repeat: every slot takes back what its tasks do not
use and shares what is free, the same rate to each; tuples flow down in topological order, every task passing on at
most what it may; back-pressure goes up. It stops when the sinks' rate rises by less than a threshold.

`FlowModel` holds what the paper leaves open or fixes otherwise than an operator would: `TATA` is the paper's reading,
`PLANNING` the one that `penstock plan` uses.

The tasks of a component are alike but for where they are, so the kernels add up what a stream carries once for all its
receivers: a round takes time in proportion to tasks, not to the edges between them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.model.kernel import inlined, kernel
from penstock.model.slotgraph import Slots
from penstock.model.taskgraph import Bools, Floats, Flow, Ints, Tasks
from penstock.model.topology import Grouping

UNLIMITED_TPS = 1e12  # the rate of a task that costs nothing
MAX_ROUNDS = 10_000
SPREAD, FORWARD, GLOBAL = 0, 1, 2  # who hears a sender: all receivers, its partner, the first
RIGID = (Grouping.FIELDS, Grouping.ALL, Grouping.DIRECT)  # a tuple's receiver is not the sender's to choose


@dataclass(frozen=True, slots=True)
class FlowModel:
    """How streams fork, what limits a task, how far back-pressure reaches, when to stop.

    copy: a fork copies every tuple to each of its streams, which carry `selectivity` tuples each and wait for the
        slowest; otherwise a task divides its tuples evenly over all tasks downstream of it, as in the paper.
    sustained: back-pressure reaches the sources within a round, keyed streams wait for their slowest receiver, and only
        what is then still sent counts. Otherwise it goes one hop a round and fast branches count what slow ones would
        have held back, as in the paper; and delays are weighted as printed (line 29), by the sender's settled rate over
        the receiver's: weights that do not sum to one where senders wait, so that the delay can exceed that of the
        longest path.
    task_cpu: the most cpu a task gets, in core-seconds a second (the authors' other file has 100 here).
    threshold: stop when the sinks' rate rises by less than this, or than this share of itself if `relative`.
    """

    copy: bool = True
    sustained: bool = True
    task_cpu: float = np.inf
    threshold: float = 1e-4
    relative: bool = True


PLANNING = FlowModel()
TATA = FlowModel(copy=False, sustained=False, threshold=0.01, relative=False)


class FlowNet(NamedTuple):
    """What the kernels read; T tasks, C components, F flows by sender, S slots, P processes, H hosts, M machines."""

    first: Ints  # [C + 1] first task of each component
    cpu: Floats  # [T] core-seconds a tuple
    cap: Floats  # [T] the most that a task's own limit allows, tuples a second
    source: Bools  # [C]
    sink: Bools  # [C]
    even: Bools  # [C] whether its tasks all hear the same: no forward or global stream leads there
    start: Ints  # [C + 1] the flows that component c sends are start[c] .. start[c + 1]
    target: Ints  # [F] receiving component
    share: Floats  # [F] tuples to each receiver a tuple processed
    heard: Ints  # [F] SPREAD, FORWARD or GLOBAL
    rigid: Bools  # [F] whether the sender cannot give another receiver what one does not take
    slot_cpu: Floats  # [S]
    slot_machine: Ints  # [S]
    slot_process: Ints  # [S]
    slot_host: Ints  # [S]
    machine_cpu: Floats  # [M] infinite where its slots cannot use more than its cores
    crowded: bool  # whether any machine has more slots than cores
    delay_ms: Floats  # [4]
    source_tuples: float  # source tuples a tuple that reaches a sink
    copy: bool
    sustained: bool
    threshold: float
    relative: bool


class Scratch(NamedTuple):
    """What the kernels write while they work, so that nothing is allocated in a loop."""

    rate: Floats  # [T] tuples a second that a task processes
    received: Floats  # [T] what reaches it after back-pressure
    delay: Floats  # [T]
    extra: Floats  # [T] inflow beyond its component's level, by forward and global streams
    taken: Floats  # [T] share of its inflow that it takes; not kept for even components if back-pressure goes one hop
    level: Floats  # [C] inflow of each task by streams that spread
    total: Floats  # [C] what the component's tasks process together
    least: Floats  # [C] what its slowest task processes
    gain: Floats  # [S] rate that each task there gains in a round
    per_slot: Floats  # [S] one over the cost of a tuple of every task there
    machine_free: Floats  # [M]
    per_machine: Floats  # [M]
    from_slot: Floats  # [S] what a stream's senders send from there; likewise below
    from_process: Floats  # [P]
    from_host: Floats  # [H]


class FlowEstimate(NamedTuple):
    """What a placement gives."""

    throughput_tps: float  # source tuples a second
    delay_ms: float  # on the way from source to sink, without processing


def flow_net(tasks: Tasks, slots: Slots, model: FlowModel = PLANNING) -> FlowNet:
    """Gather what the kernels read of a topology and a cluster."""
    receivers = [_receivers(tasks, flow) for flow in tasks.flows]
    degree = np.zeros(len(tasks.position))
    for flow, count in zip(tasks.flows, receivers, strict=True):
        degree[flow.source] += count
    every_slot = np.bincount(slots.machine, slots.cpu)
    crowded = every_slot > slots.machine_cpu * (1 + 1e-9)
    at_sinks = float(tasks.gain[tasks.sink].sum()) if model.copy else 1.0
    sent = np.bincount([flow.source for flow in tasks.flows], minlength=len(tasks.position))
    kinds = {Grouping.FORWARD: FORWARD, Grouping.GLOBAL: GLOBAL}
    heard = np.array([kinds.get(flow.grouping, SPREAD) for flow in tasks.flows], dtype=np.int32)
    target = np.array([flow.target for flow in tasks.flows], dtype=np.int32)
    costs = tasks.cpu > 0
    return FlowNet(
        first=tasks.first,
        cpu=tasks.cpu,
        cap=np.where(costs, model.task_cpu / np.where(costs, tasks.cpu, 1.0), UNLIMITED_TPS),
        source=tasks.source[tasks.first[:-1]],
        sink=tasks.sink[tasks.first[:-1]],
        even=~np.isin(np.arange(len(tasks.position)), target[heard != SPREAD]),
        start=np.concatenate([[0], np.cumsum(sent)]).astype(np.int32),
        target=target,
        share=np.array([flow.share if model.copy else 1.0 / degree[flow.source] for flow in tasks.flows]),
        heard=heard,
        rigid=np.array([model.sustained and flow.grouping in RIGID for flow in tasks.flows], dtype=np.bool_),
        slot_cpu=slots.cpu,
        slot_machine=slots.machine,
        slot_process=slots.process,
        slot_host=slots.host,
        machine_cpu=np.where(crowded, slots.machine_cpu, np.inf),
        crowded=bool(crowded.any()),
        delay_ms=slots.delay_ms,
        source_tuples=1.0 / at_sinks if at_sinks > 0 else 0.0,
        copy=model.copy,
        sustained=model.sustained,
        threshold=model.threshold,
        relative=model.relative,
    )


def _receivers(tasks: Tasks, flow: Flow) -> int:
    """Return to how many tasks each sender of a flow sends."""
    one = flow.grouping in (Grouping.FORWARD, Grouping.GLOBAL)
    return 1 if one else len(tasks.of(flow.target))


def estimate_flow(net: FlowNet, placed: ArrayLike) -> FlowEstimate:
    """Estimate one placement: a slot for every task."""
    throughput, delay = estimate_flows(net, np.asarray(placed, dtype=np.int32)[None, :])
    return FlowEstimate(float(throughput[0]), float(delay[0]))


@kernel
def estimate_flows(net: FlowNet, placed: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Estimate many placements at once: `placed` is [B, T]; the results are tuples a second and ms, each [B]."""
    throughput = np.empty(len(placed))
    delay = np.empty(len(placed))
    work = _scratch(net)
    for row in range(len(placed)):
        throughput[row] = _settle(net, placed[row], work) * net.source_tuples
        if net.source_tuples == 0.0:  # nothing reaches a sink: count what leaves the sources
            for component in range(len(net.source)):
                if net.source[component]:
                    for task in range(net.first[component], net.first[component + 1]):
                        throughput[row] += work.rate[task]
        delay[row] = _mean_delay(net, placed[row], work)
    return throughput, delay


@kernel
def _scratch(net: FlowNet) -> Scratch:
    tasks, components = len(net.cpu), len(net.source)
    slots, machines = len(net.slot_cpu), len(net.machine_cpu)
    return Scratch(
        np.zeros(tasks),
        np.zeros(tasks),
        np.zeros(tasks),
        np.zeros(tasks),
        np.ones(tasks),
        np.zeros(components),
        np.zeros(components),
        np.zeros(components),
        np.zeros(slots),
        np.zeros(slots),
        np.zeros(machines),
        np.zeros(machines),
        np.zeros(slots),
        np.zeros(net.slot_process.max() + 1),
        np.zeros(net.slot_host.max() + 1),
    )


@kernel
def _settle(net: FlowNet, placed: NDArray[np.int32], work: Scratch) -> float:
    """Let tuples flow until the sinks' rate no longer rises, and return that rate."""
    first, start, target, share, heard = net.first, net.start, net.target, net.share, net.heard
    source, sink, even, rigid, cpu, cap = net.source, net.sink, net.even, net.rigid, net.cpu, net.cap
    rate, received, extra, taken = work.rate, work.received, work.extra, work.taken
    level, total, least, gain = work.level, work.total, work.least, work.gain
    slot_cpu, per_slot = net.slot_cpu, work.per_slot
    slot_machine, machine_cpu = net.slot_machine, net.machine_cpu
    machine_free, per_machine = work.machine_free, work.per_machine
    rate[:] = 0.0
    _per_cost(cpu, placed, per_slot)
    if net.crowded:
        _per_cost(cpu, slot_machine[placed], per_machine)
    at_sinks = 0.0
    for _ in range(MAX_ROUNDS):
        _share_out(placed, cpu, rate, slot_cpu, per_slot, gain)
        if net.crowded:
            _within_machines(placed, cpu, rate, slot_machine, machine_cpu, per_machine, machine_free, gain)
        _flow_down(first, start, target, share, heard, source, placed, cpu, cap, gain, rate, level, extra, total, least)
        reached = _sum_where(sink, total)
        if net.sustained:
            for component in range(len(source) - 1, -1, -1):
                if not sink[component]:
                    _slow_down(
                        component,
                        first,
                        start,
                        target,
                        share,
                        heard,
                        rigid,
                        even,
                        net.copy,
                        level,
                        total,
                        least,
                        taken,
                        rate,
                    )
                    total[component], least[component] = _add_up(first, component, rate)
                _set_taken(first, component, level, extra, rate, taken)
            _flow_again(first, start, target, share, heard, rigid, source, even, level, total, taken, rate, received)
            reached = 0.0
            for component in range(len(source)):
                if sink[component]:
                    reached += _add_up(first, component, rate)[0]
        else:
            for component in range(len(source)):
                if not even[component]:
                    _set_taken(first, component, level, extra, rate, taken)
            for component in range(len(source)):
                if not sink[component]:
                    _slow_down(
                        component,
                        first,
                        start,
                        target,
                        share,
                        heard,
                        rigid,
                        even,
                        net.copy,
                        level,
                        total,
                        least,
                        taken,
                        rate,
                    )
        rise, at_sinks = reached - at_sinks, reached
        if rise < (net.threshold * reached if net.relative else net.threshold):
            break
    if not net.sustained:
        received[:] = rate
    return at_sinks


@inlined
def _per_cost(cpu: Floats, place: NDArray[np.int32], per: Floats) -> None:
    """Set for every place one over what a tuple of each task there costs together."""
    per[:] = 0.0
    for task in range(len(cpu)):
        per[place[task]] += cpu[task]
    for number in range(len(per)):
        per[number] = 1.0 / per[number] if per[number] > 0.0 else 0.0


@inlined
def _share_out(
    placed: NDArray[np.int32], cpu: Floats, rate: Floats, slot_cpu: Floats, per_slot: Floats, gain: Floats
) -> None:
    """Set the rate that every task in a slot gains: an equal part of what the slot has free."""
    for slot in range(len(gain)):
        gain[slot] = slot_cpu[slot]
    for task in range(len(cpu)):
        gain[placed[task]] -= rate[task] * cpu[task]
    for slot in range(len(gain)):
        gain[slot] = max(gain[slot] * per_slot[slot], 0.0)


@inlined
def _within_machines(
    placed: NDArray[np.int32],
    cpu: Floats,
    rate: Floats,
    slot_machine: Ints,
    machine_cpu: Floats,
    per_machine: Floats,
    machine_free: Floats,
    gain: Floats,
) -> None:
    """Keep what tasks gain within what their machine has free: its other slots may have taken the cores."""
    for machine in range(len(machine_free)):
        machine_free[machine] = machine_cpu[machine]
    for task in range(len(cpu)):
        machine_free[slot_machine[placed[task]]] -= rate[task] * cpu[task]
    for slot in range(len(gain)):
        machine = slot_machine[slot]
        gain[slot] = min(gain[slot], max(machine_free[machine] * per_machine[machine], 0.0))


@inlined
def _flow_down(
    first: Ints,
    start: Ints,
    target: Ints,
    share: Floats,
    heard: Ints,
    source: Bools,
    placed: NDArray[np.int32],
    cpu: Floats,
    cap: Floats,
    gain: Floats,
    rate: Floats,
    level: Floats,
    extra: Floats,
    total: Floats,
    least: Floats,
) -> None:
    """Let tuples flow from the sources, every task passing on what it may."""
    for component in range(len(level)):
        level[component] = 0.0
    for task in range(len(extra)):
        extra[task] = 0.0
    for component in range(len(source)):
        inflow = np.inf if source[component] else level[component]
        for task in range(first[component], first[component + 1]):
            limit = min(rate[task] + gain[placed[task]], cap[task]) if cpu[task] > 0.0 else UNLIMITED_TPS
            rate[task] = min(limit, inflow + extra[task])
        total[component], least[component] = _add_up(first, component, rate)
        for flow in range(start[component], start[component + 1]):
            to = first[target[flow]]
            if heard[flow] == SPREAD:
                level[target[flow]] += total[component] * share[flow]
            elif heard[flow] == GLOBAL:
                extra[to] += total[component] * share[flow]
            else:
                for task in range(first[component], first[component + 1]):
                    extra[to + task - first[component]] += rate[task] * share[flow]


@inlined
def _add_up(first: Ints, component: int, rate: Floats) -> tuple[float, float]:
    """Return the sum and the least of the rates of a component's tasks."""
    total, least = 0.0, np.inf
    for task in range(first[component], first[component + 1]):
        total += rate[task]
        least = min(least, rate[task])
    return total, least


@inlined
def _sum_where(chosen: Bools, amount: Floats) -> float:
    total = 0.0
    for number in range(len(chosen)):
        if chosen[number]:
            total += amount[number]
    return total


@inlined
def _set_taken(first: Ints, component: int, level: Floats, extra: Floats, rate: Floats, taken: Floats) -> None:
    """Set the share of its inflow that every task of a component takes."""
    for task in range(first[component], first[component + 1]):
        inflow = level[component] + extra[task]
        taken[task] = rate[task] / inflow if inflow > 0.0 else 1.0


@inlined
def _accepted(
    receiver: int, hears: int, first: Ints, even: Bools, level: Floats, total: Floats, least: Floats, taken: Floats
) -> tuple[float, float, int]:
    """Return mean and least share that the receivers of a stream take of it, and how many receivers a sender has."""
    count = 1 if hears == GLOBAL else first[receiver + 1] - first[receiver]
    mean, worst = 1.0, 1.0
    if even[receiver]:
        if level[receiver] > 0.0:
            mean = total[receiver] / (count * level[receiver])
            worst = least[receiver] / level[receiver]
    else:
        mean = 0.0
        for task in range(first[receiver], first[receiver] + count):
            mean += taken[task] / count
            worst = min(worst, taken[task])
    return mean, worst, count


@inlined
def _slow_down(
    component: int,
    first: Ints,
    start: Ints,
    target: Ints,
    share: Floats,
    heard: Ints,
    rigid: Bools,
    even: Bools,
    copy: bool,
    level: Floats,
    total: Floats,
    least: Floats,
    taken: Floats,
    rate: Floats,
) -> None:
    """Lower the rates of a component's tasks to what their receivers take.

    Receivers on a flexible stream stand in for each other, so a sender feels their mean; on a rigid one it waits for
    the slowest. A task that copies waits for its slowest stream; one that divides its tuples feels the mean of all.
    """
    slowest, part, whole, forwards = 1.0, 0.0, 0.0, False
    for flow in range(start[component], start[component + 1]):
        if heard[flow] == FORWARD:
            forwards = True
        elif share[flow] > 0.0:
            mean, worst, count = _accepted(target[flow], heard[flow], first, even, level, total, least, taken)
            slowest = min(slowest, worst if rigid[flow] else mean)
            part += share[flow] * count * mean
            whole += share[flow] * count
    if not forwards:
        factor = slowest if copy else part / whole if whole > 0.0 else 1.0
        for task in range(first[component], first[component + 1]):
            rate[task] *= factor
    else:
        for task in range(first[component], first[component + 1]):
            own_slowest, own, own_whole = slowest, part, whole
            for flow in range(start[component], start[component + 1]):
                if heard[flow] == FORWARD and share[flow] > 0.0:
                    partner = taken[first[target[flow]] + task - first[component]]
                    own_slowest = min(own_slowest, partner)
                    own += share[flow] * partner
                    own_whole += share[flow]
            rate[task] *= own_slowest if copy else own / own_whole if own_whole > 0.0 else 1.0


@inlined
def _flow_again(
    first: Ints,
    start: Ints,
    target: Ints,
    share: Floats,
    heard: Ints,
    rigid: Bools,
    source: Bools,
    even: Bools,
    level: Floats,
    total: Floats,
    taken: Floats,
    rate: Floats,
    received: Floats,
) -> None:
    """Let tuples flow at the rates that back-pressure left.

    A flexible stream gives every receiver the part that it takes, a rigid one gives all receivers theirs.
    """
    for task in range(len(received)):
        received[task] = 0.0
    for component in range(len(source)):
        if not source[component]:
            for task in range(first[component], first[component + 1]):
                rate[task] = min(rate[task], received[task])
        sent, _ = _add_up(first, component, rate)
        for flow in range(start[component], start[component + 1]):
            to = first[target[flow]]
            if heard[flow] == FORWARD:
                for task in range(first[component], first[component + 1]):
                    received[to + task - first[component]] += rate[task] * share[flow]
            else:
                mean, _, count = _accepted(target[flow], heard[flow], first, even, level, total, total, taken)
                for task in range(to, to + count):
                    weight = 1.0 if rigid[flow] or mean == 0.0 else taken[task] / mean
                    received[task] += sent * share[flow] * weight


@kernel
def _mean_delay(net: FlowNet, placed: NDArray[np.int32], work: Scratch) -> float:
    """Return the mean delay from source to sink over all paths, each weighted by the tuples that take it (line 29)."""
    first, start, target, share, heard, even = net.first, net.start, net.target, net.share, net.heard, net.even
    rigid, sink, delay_ms = net.rigid, net.sink, net.delay_ms
    process, host = net.slot_process, net.slot_host
    rate, received, delay, taken = work.rate, work.received, work.delay, work.taken
    level, total = work.level, work.total
    from_slot, from_process, from_host = work.from_slot, work.from_process, work.from_host
    delay[:] = 0.0
    at_sinks = 0.0
    weighted = 0.0
    for component in range(len(sink)):
        begin, end = first[component], first[component + 1]
        if sink[component]:
            for task in range(begin, end):
                at_sinks += rate[task]
                weighted += rate[task] * delay[task]
        for flow in range(start[component], start[component + 1]):
            to = first[target[flow]]
            if heard[flow] == FORWARD:
                for task in range(begin, end):
                    other = to + task - begin
                    if received[other] > 0.0:
                        hop = _distance(placed[task], placed[other], process, host, delay_ms)
                        delay[other] += rate[task] * share[flow] * (delay[task] + hop) / received[other]
                continue
            late = _add_senders(
                begin, end, placed, process, host, rate, delay, delay_ms, from_slot, from_process, from_host
            )
            mean, _, count = _accepted(target[flow], heard[flow], first, even, level, total, total, taken)
            evenly = rigid[flow] or mean == 0.0 or not net.sustained
            for task in range(to, to + count):
                if received[task] > 0.0:
                    weight = share[flow] * (1.0 if evenly else taken[task] / mean)
                    sooner = _sooner(placed[task], process, host, delay_ms, from_slot, from_process, from_host)
                    delay[task] += weight * (late - sooner) / received[task]
            for task in range(begin, end):
                from_slot[placed[task]] = 0.0
                from_process[process[placed[task]]] = 0.0
                from_host[host[placed[task]]] = 0.0
    return weighted / at_sinks if at_sinks > 0.0 else 0.0


@inlined
def _distance(here: int, there: int, process: Ints, host: Ints, delay_ms: Floats) -> float:
    """Return the delay between two slots."""
    level = 3
    if here == there:
        level = 0
    elif process[here] == process[there]:
        level = 1
    elif host[here] == host[there]:
        level = 2
    return delay_ms[level]


@inlined
def _add_senders(
    begin: int,
    end: int,
    placed: NDArray[np.int32],
    process: Ints,
    host: Ints,
    rate: Floats,
    delay: Floats,
    delay_ms: Floats,
    from_slot: Floats,
    from_process: Floats,
    from_host: Floats,
) -> float:
    """Add up what tasks send from each slot, process and host; return their delays if all went to other hosts."""
    late = 0.0
    for task in range(begin, end):
        slot = placed[task]
        late += rate[task] * (delay[task] + delay_ms[3])
        from_slot[slot] += rate[task]
        from_process[process[slot]] += rate[task]
        from_host[host[slot]] += rate[task]
    return late


@inlined
def _sooner(
    slot: int,
    process: Ints,
    host: Ints,
    delay_ms: Floats,
    from_slot: Floats,
    from_process: Floats,
    from_host: Floats,
) -> float:
    """Return by how much less than from other hosts all tuples that reach a slot are delayed."""
    by_host = (delay_ms[3] - delay_ms[2]) * from_host[host[slot]]
    by_process = (delay_ms[2] - delay_ms[1]) * from_process[process[slot]]
    return by_host + by_process + (delay_ms[1] - delay_ms[0]) * from_slot[slot]
