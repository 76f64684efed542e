"""The latency of many placements at once, compiled: features, regressions and the longest path of each.

Three optimisations, none of which changes a digit of the result:

- A radial kernel over the features of two tasks is a product of one factor per task, so exponentials are computed per
  task and vector, not per pair and vector.
- Tasks of one component with equal loads on one machine have equal features: one of them represents all.
- Most placements in a search differ from the previous one in one or two tasks. Only the parts that involve machines
  with different tasks are recomputed; the rest is taken from a base placement.

Recomputation uses the same order of operations, so a placement has one score, independent of its base.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.regression import SLACK
from penstock.model.kernel import kernel, lean
from penstock.model.taskgraph import Bools, Floats, Ints

FLAT, LINEAR, RADIAL = 0, 1, 2
MACHINE = 4  # features of a task and its machine at each end of an edge: cpu, memory, load, load of the machine
NOBODY = -1


class Fits(NamedTuple):
    """All regressors, one after another: those of components, then those of streams; Q of them, V vectors in total.

    There are few arrays, because passing each of them between kernels takes compile time.
    """

    kind: Ints  # [Q] FLAT, LINEAR or RADIAL
    first: Ints  # [Q + 1] its first vector
    vectors: Floats  # [V, F] standardised; F is the larger number of features
    weights: Floats  # [3, V] PLAIN; APART and TOGETHER: times the factor of tasks on different machines, on one
    biases: Floats  # [3, Q] PLAIN; APART and TOGETHER: with a linear model's term for that
    ranges: Floats  # [5, Q, F] CENTRE, SPREAD, LEAST, MOST, LIMIT
    labels: Floats  # [6, Q] GAMMA, LABEL_CENTRE, LABEL_SPREAD, SHORTEST, LONGEST, LOGARITHM (1 or 0)


PLAIN, APART, TOGETHER = 0, 1, 2
CENTRE, SPREAD, LEAST, MOST, LIMIT = 0, 1, 2, 3, 4
GAMMA, LABEL_CENTRE, LABEL_SPREAD, SHORTEST, LONGEST, LOGARITHM = 0, 1, 2, 3, 4, 5


class LatencyNet(NamedTuple):
    """An application under load on a cluster; T tasks, C components, S slots, M machines, L streams, E edges."""

    fits: Fits
    component: Ints  # [T]
    alike: Ints  # [T] tasks with the same number have equal features on one machine
    first: Ints  # [C + 1]
    source: Bools  # [C] its own processing does not count
    task_tps: Floats  # [T]
    cpu: Floats  # [T]
    task_share: Floats  # [T]
    slot_machine: Ints  # [S]
    slot_cpu: Floats  # [S]
    machine_cpu: Floats  # [M]
    machine_memory_mb: Floats  # [M]
    stream_source: Ints  # [L] component, ascending
    stream_target: Ints  # [L]
    stream_used: Bools  # [L] whether it carries tuples
    stream_first: Ints  # [L + 1] its first edge
    factor_first: NDArray[np.int64]  # [L + 1] start of its factors, by sender, then by receiver
    pair_first: NDArray[np.int64]  # [L + 1] start of its pairs, by sender
    edge_source: Ints  # [E] task
    edge_target: Ints  # [E] task
    edge_share: Floats  # [E]


class LatencyState(NamedTuple):
    """The computed values of a placement."""

    machine: Ints  # [T]
    stands: Ints  # [T] the task that represents it: the first of its kind on its machine
    features: Floats  # [M, 2] load, tasks
    processing: Floats  # [T]
    factor: Floats  # of each end of each stream, by vector
    end_excess: Floats  # [L, 2, T]
    pair: Floats  # of each stream, by sender and receiver
    stamp: NDArray[np.int64]  # of each pair: the row for which it was computed


class Times(NamedTuple):
    """The predicted times of a placement."""

    processing: Floats  # [C] (2.2)
    transfer: Floats  # [L] (2.3)


@kernel
def total_latencies(net: LatencyNet, placed: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Return for placements [B, T] the latency (2.5) and the maximum utilisation of a machine or slot: [B], [B]."""
    rows, machines = len(placed), len(net.machine_cpu)
    seconds, busiest = np.zeros(rows), np.zeros(rows)
    base, other = new_state(net), new_state(net)
    times = Times(np.zeros(len(net.first) - 1), np.zeros(len(net.stream_source)))
    done = np.zeros(len(net.first) - 1)
    first_of = np.full((len(net.component), machines), NOBODY, dtype=np.int32)
    slot_cpu = np.zeros(len(net.slot_cpu))
    affected = np.ones(machines, dtype=np.bool_)
    everything = np.ones(machines, dtype=np.bool_)
    for row in range(rows):
        near = row > 0 and 2 * differing(net, base, placed[row], affected) <= machines
        if near:
            compute_times(net, placed[row], row, affected, base, other, times, first_of)
            busiest[row] = fullest(net, placed[row], other, slot_cpu)
        else:
            compute_times(net, placed[row], row, everything, base, base, times, first_of)
            busiest[row] = fullest(net, placed[row], base, slot_cpu)
        seconds[row] = longest(net, times, done)
    return seconds, busiest


@kernel
def new_state(net: LatencyNet) -> LatencyState:
    """Return empty tables for a placement."""
    tasks, machines, streams = len(net.component), len(net.machine_cpu), len(net.stream_source)
    pairs = net.pair_first[streams]
    return LatencyState(
        machine=np.zeros(tasks, dtype=np.int32),
        stands=np.zeros(tasks, dtype=np.int32),
        features=np.zeros((machines, 2)),
        processing=np.zeros(tasks),
        factor=np.zeros(net.factor_first[streams]),
        end_excess=np.zeros((streams, 2, tasks)),
        pair=np.zeros(pairs),
        stamp=np.full(pairs, NOBODY, dtype=np.int64),
    )


@kernel
def differing(net: LatencyNet, base: LatencyState, slots: NDArray[np.int32], affected: Bools) -> int:
    """Mark the machines whose tasks differ from the base; return their number."""
    affected[:] = False
    for task in range(len(slots)):
        machine = net.slot_machine[slots[task]]
        if machine != base.machine[task]:
            affected[machine] = True
            affected[base.machine[task]] = True
    return int(affected.sum())


@kernel
def compute_times(
    net: LatencyNet,
    slots: NDArray[np.int32],
    row: int,
    affected: Bools,
    base: LatencyState,
    out: LatencyState,
    times: Times,
    first_of: Ints,
) -> None:
    """Compute the times of a placement: recompute the parts with affected machines, take the others from the base."""
    gather_loads(net, slots, out, first_of)
    for component in range(len(net.first) - 1):
        if not net.source[component]:
            times.processing[component] = processing_time(net, component, affected, base, out)
    for stream in range(len(net.stream_source)):
        if net.stream_used[stream]:
            for end in range(2):
                fill_factors(net, stream, end, affected, out)
            times.transfer[stream] = transfer_time(net, stream, row, affected, base, out)


@kernel
def gather_loads(net: LatencyNet, slots: NDArray[np.int32], out: LatencyState, first_of: Ints) -> None:
    """Compute the loads of machines, and the representative of each task."""
    out.features[:] = 0.0
    for task in range(len(slots)):
        machine, alike = net.slot_machine[slots[task]], net.alike[task]
        out.machine[task] = machine
        out.features[machine, 0] += net.task_tps[task]
        out.features[machine, 1] += 1.0
        if first_of[alike, machine] == NOBODY:
            first_of[alike, machine] = task
        out.stands[task] = first_of[alike, machine]
    for task in range(len(slots)):
        first_of[net.alike[task], out.machine[task]] = NOBODY


@kernel
def processing_time(net: LatencyNet, component: int, affected: Bools, base: LatencyState, out: LatencyState) -> float:
    """Return t_i^Proc (2.2): the mean over a component's tasks, weighted by their shares."""
    total = 0.0
    features = np.empty(5)
    for task in range(net.first[component], net.first[component + 1]):
        machine, stands = out.machine[task], out.stands[task]
        if not affected[machine]:
            total += net.task_share[task] * base.processing[stands]
            continue
        if stands == task:
            features[0] = net.machine_cpu[machine]
            features[1] = net.machine_memory_mb[machine]
            features[2] = net.task_tps[task]
            features[3] = out.features[machine, 0]
            features[4] = out.features[machine, 1] - 1.0
            out.processing[task] = predict(net.fits, component, features)
        total += net.task_share[task] * out.processing[stands]
    return total


@kernel
def predict(fits: Fits, model: int, features: Floats) -> float:
    """Return the label of one row of features."""
    excess, value = 0.0, fits.biases[PLAIN, model]
    standard = np.empty(len(features))
    for f in range(len(features)):
        excess = max(excess, excess_over_limit(fits, model, f, features[f]))
        standard[f] = clamped(fits, model, f, features[f])
    for vector in range(fits.first[model], fits.first[model + 1]):
        alike = 0.0
        for f in range(len(features)):
            if fits.kind[model] == RADIAL:
                alike += (standard[f] - fits.vectors[vector, f]) ** 2
            else:
                alike += standard[f] * fits.vectors[vector, f]
        if fits.kind[model] == RADIAL:
            alike = np.exp(-fits.labels[GAMMA, model] * alike)
        value += fits.weights[PLAIN, vector] * alike
    return float(bounded_label(fits, model, value) * (1.0 + excess))


@lean
def clamped(fits: Fits, model: int, f: int, value: float) -> float:
    """Return a feature clamped to the training range, standardised."""
    inside = min(max(value, fits.ranges[LEAST, model, f]), fits.ranges[MOST, model, f])
    return float((inside - fits.ranges[CENTRE, model, f]) / fits.ranges[SPREAD, model, f])


@lean
def excess_over_limit(fits: Fits, model: int, f: int, value: float) -> float:
    """Return the amount by which a feature exceeds its limit, relative to the limit."""
    limit = fits.ranges[LIMIT, model, f]
    return max(value / limit - 1.0, 0.0) if limit > 0.0 else 0.0


@lean
def bounded_label(fits: Fits, model: int, fitted: float) -> float:
    """Return the label of a fitted value, within its bounds."""
    longest = fits.labels[LONGEST, model] * SLACK
    value = fits.labels[LABEL_CENTRE, model] + fits.labels[LABEL_SPREAD, model] * fitted
    if fits.labels[LOGARITHM, model] > 0.0:
        value = np.exp(min(value, np.log(longest)))
    return float(min(max(value, fits.labels[SHORTEST, model] / SLACK), longest))


@kernel
def fill_factors(net: LatencyNet, stream: int, end: int, affected: Bools, out: LatencyState) -> None:
    """Compute the factor of each task at one end (0: senders, 1: receivers) with each vector of the stream's model."""
    fits, model = net.fits, len(net.first) - 1 + stream
    first, last = fits.first[model], fits.first[model + 1]
    component = net.stream_source[stream] if end == 0 else net.stream_target[stream]
    at = net.factor_first[stream]
    if end == 1:
        sender = net.stream_source[stream]
        at += (net.first[sender + 1] - net.first[sender]) * (last - first)
    radial, shift = fits.kind[model] == RADIAL, MACHINE * end
    values = np.empty(MACHINE)
    for task in range(net.first[component], net.first[component + 1]):
        machine = out.machine[task]
        if affected[machine] and out.stands[task] == task:
            values[0], values[1] = net.machine_cpu[machine], net.machine_memory_mb[machine]
            values[2], values[3] = net.task_tps[task], out.features[machine, 0]
            excess = 0.0
            for f in range(MACHINE):
                excess = max(excess, excess_over_limit(fits, model, shift + f, values[f]))
                values[f] = clamped(fits, model, shift + f, values[f])
            out.end_excess[stream, end, task] = excess
            place = at + (task - net.first[component]) * (last - first)
            for vector in range(first, last):
                alike = 0.0
                for f in range(MACHINE):
                    if radial:
                        alike += (values[f] - fits.vectors[vector, shift + f]) ** 2
                    else:
                        alike += values[f] * fits.vectors[vector, shift + f]
                out.factor[place] = np.exp(-fits.labels[GAMMA, model] * alike) if radial else alike
                place += 1


@kernel
def transfer_time(
    net: LatencyNet, stream: int, row: int, affected: Bools, base: LatencyState, out: LatencyState
) -> float:
    """Return t_i^Tran (2.3): the mean over the pairs of tasks of a stream, weighted by their shares."""
    total = 0.0
    source, target = net.stream_source[stream], net.stream_target[stream]
    receivers = net.first[target + 1] - net.first[target]
    for edge in range(net.stream_first[stream], net.stream_first[stream + 1]):
        here, there = out.stands[net.edge_source[edge]], out.stands[net.edge_target[edge]]
        pair = net.pair_first[stream] + (here - net.first[source]) * receivers + there - net.first[target]
        if not (affected[out.machine[here]] or affected[out.machine[there]]):
            total += net.edge_share[edge] * base.pair[pair]
            continue
        if out.stamp[pair] != row:
            out.pair[pair] = pair_time(net, stream, here, there, affected, base, out)
            out.stamp[pair] = row
        total += net.edge_share[edge] * out.pair[pair]
    return total


@lean
def pair_time(
    net: LatencyNet, stream: int, here: int, there: int, affected: Bools, base: LatencyState, out: LatencyState
) -> float:
    """Return t_ijk^Tran of two tasks."""
    fits, model = net.fits, len(net.first) - 1 + stream
    source, target = net.stream_source[stream], net.stream_target[stream]
    first, vectors = fits.first[model], fits.first[model + 1] - fits.first[model]
    senders = net.first[source + 1] - net.first[source]
    sent = net.factor_first[stream] + (here - net.first[source]) * vectors
    got = net.factor_first[stream] + (senders + there - net.first[target]) * vectors
    sender = out.factor if affected[out.machine[here]] else base.factor
    receiver = out.factor if affected[out.machine[there]] else base.factor
    one = out.end_excess if affected[out.machine[here]] else base.end_excess
    other = out.end_excess if affected[out.machine[there]] else base.end_excess
    excess = max(one[stream, 0, here], other[stream, 1, there])
    how = TOGETHER if out.machine[here] == out.machine[there] else APART
    value = fits.biases[how, model]
    if fits.kind[model] == RADIAL:
        value += product(sender, sent, receiver, got, fits.weights[how], first, vectors)
    elif fits.kind[model] == LINEAR:
        for vector in range(vectors):
            value += fits.weights[PLAIN, first + vector] * (sender[sent + vector] + receiver[got + vector])
    return float(bounded_label(fits, model, value) * (1.0 + excess))


@lean
def product(sender: Floats, sent: int, receiver: Floats, got: int, weights: Floats, first: int, vectors: int) -> float:
    """Sum the products of two tasks' factors in four independent sums; one sum would wait for each addition."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = vectors - vectors % 4
    for v in range(0, whole, 4):
        a += sender[sent + v] * receiver[got + v] * weights[first + v]
        b += sender[sent + v + 1] * receiver[got + v + 1] * weights[first + v + 1]
        c += sender[sent + v + 2] * receiver[got + v + 2] * weights[first + v + 2]
        d += sender[sent + v + 3] * receiver[got + v + 3] * weights[first + v + 3]
    for v in range(whole, vectors):
        a += sender[sent + v] * receiver[got + v] * weights[first + v]
    return (a + b) + (c + d)


@kernel
def fullest(net: LatencyNet, slots: NDArray[np.int32], state: LatencyState, slot_cpu: Floats) -> float:
    """Return the maximum utilisation of a machine or slot; 1 is its capacity."""
    slot_cpu[:] = 0.0
    machine_cpu = np.zeros(len(net.machine_cpu))
    worst = 0.0
    for task in range(len(slots)):
        slot_cpu[slots[task]] += net.cpu[task]
        machine_cpu[state.machine[task]] += net.cpu[task]
        worst = max(worst, slot_cpu[slots[task]] / net.slot_cpu[slots[task]])
    for machine in range(len(machine_cpu)):
        worst = max(worst, machine_cpu[machine] / net.machine_cpu[machine])
    return worst


@kernel
def longest(net: LatencyNet, times: Times, done: Floats) -> float:
    """Return t_G (2.5): the longest path from a source to an end, by dynamic programming over streams."""
    worst = 0.0
    for component in range(len(done)):
        done[component] = 0.0 if net.source[component] else -np.inf
    for stream in range(len(net.stream_source)):  # by ascending source: all streams that lead to it precede it
        if net.stream_used[stream]:
            target = net.stream_target[stream]
            arrived = done[net.stream_source[stream]] + times.transfer[stream]
            done[target] = max(done[target], arrived + times.processing[target])
    for component in range(len(done)):
        worst = max(worst, done[component])
    return worst
