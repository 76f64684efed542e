"""The estimators of `penstock.estimate` in JAX, for many placements of many instances at once.

Two of them: TATA's (`estimate.flow`), and planning's with evenly split streams (`estimate.bottleneck`). A function here
describes one instance and its K placements; `jax.vmap` adds instances. Streams that prefer receivers in their own
process count as evenly split.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

SPREAD, FORWARD, GLOBAL = 0, 1, 2  # as in model.taskgraph, which must not be imported where there is only JAX
UNLIMITED = 1e12
THRESHOLD = 0.01
ROUNDS = 100  # in the authors' data at most 76 are needed; bad random placements may take more


class Net(NamedTuple):
    """An instance: T tasks, S slots, M machines; padded tasks and slots have mask 0."""

    task_mask: Array  # [T]
    cpu: Array  # [T]
    gain: Array  # [T]
    memory: Array  # [T]
    source: Array  # [T]
    sink: Array  # [T]
    bonus: Array  # [T] rate that costs nothing
    level: Array  # [T]
    even: Array  # [T, T] part of a task's tuples that another gets, if all its receivers get the same (TATA)
    share: Array  # [T, T] tuples per processed tuple to another
    bits: Array  # [T, T] the same in bits
    slot_cpu: Array  # [S]
    slot_memory: Array  # [S]
    slot_machine: Array  # [S]
    machine_of: Array  # [S, M] one-hot
    machine_cpu: Array  # [M]
    machine_memory: Array  # [M]
    card: Array  # [M, 2] bits per second sent and received
    distance: Array  # [S, S] ms


class Estimate(NamedTuple):
    """Predictions for K placements."""

    rate: Array  # [K] source tuples per second
    delay: Array  # [K] ms


def expand(row: dict[str, Array]) -> Net:
    """Return the net of an instance in the form of `instances.to_arrays`."""
    component, number = row["component"], row["number"]
    kind = row["stream_kind"][component[:, None], component[None, :]]
    heard = (kind == SPREAD) | ((kind == FORWARD) & (number[:, None] == number[None, :]))
    heard |= (kind == GLOBAL) & (number[None, :] == 0)
    heard &= (row["task_mask"][:, None] * row["task_mask"][None, :]) > 0
    even, share, bits = (
        jnp.where(heard, row[name][component[:, None], component[None, :]], 0.0)
        for name in ("even_share", "share", "bits")
    )
    machines = row["machine_cpu"].shape[0]
    return Net(
        task_mask=row["task_mask"],
        cpu=row["cpu"],
        gain=row["gain"],
        memory=row["memory"],
        source=row["source"],
        sink=row["sink"],
        bonus=row["needs_nothing"],
        level=jnp.where(row["task_mask"] > 0, row["level"][component], -1),
        even=even,
        share=share,
        bits=bits,
        slot_cpu=row["slot_cpu"],
        slot_memory=row["slot_memory"],
        slot_machine=row["slot_machine"],
        machine_of=jax.nn.one_hot(row["slot_machine"], machines),
        machine_cpu=row["machine_cpu"],
        machine_memory=row["machine_memory"],
        card=row["card"],
        distance=_distances(row),
    )


def _distances(row: dict[str, Array]) -> Array:
    slots = row["slot_cpu"].shape[0]
    same_host = row["slot_host"][:, None] == row["slot_host"][None, :]
    same_process = row["slot_process"][:, None] == row["slot_process"][None, :]
    level = 3 - same_host.astype(jnp.int32) - same_process.astype(jnp.int32) - jnp.eye(slots, dtype=jnp.int32)
    return row["delay_ms"][level]


def one_hot(net: Net, placed: Array) -> Array:
    """Return where tasks are: [K, T, S], 0 for padded tasks."""
    return jax.nn.one_hot(placed, net.slot_cpu.shape[0]) * net.task_mask[:, None]


def fits_memory(net: Net, where: Array) -> Array:
    """Return which placements violate no memory limit. [K]"""
    in_slot = jnp.einsum("kts,t->ks", where, net.memory)
    on_machine = in_slot @ net.machine_of
    slack = 1 + 1e-5  # of float32
    return (in_slot <= net.slot_memory * slack).all(-1) & (on_machine <= net.machine_memory * slack).all(-1)


def published_estimate(net: Net, placed: Array, levels: int, rounds: int = ROUNDS) -> Estimate:
    """Return TATA's estimate of placements [K, T]; `levels` is the maximum number of components in a path.

    It ends early for all placements that have settled; the others have the rate of the last round.
    """
    where = one_hot(net, placed)
    rate, reached = _settle(net, where, placed, levels, rounds)
    return Estimate(reached, _delay(net, placed, rate, rate[:, :, None] * net.even, levels))


def even_estimate(net: Net, placed: Array, levels: int) -> Estimate:
    """Return planning's estimate of placements [K, T] with evenly split streams."""
    where = one_hot(net, placed)
    in_slot = jnp.einsum("kts,t->ks", where, net.cpu * net.gain)
    on_machine = in_slot @ net.machine_of
    sent = net.gain[:, None] * net.bits * (net.task_mask[:, None] * net.task_mask[None, :])
    machine = net.slot_machine[placed]
    crossing = jnp.where(machine[:, :, None] != machine[:, None, :], sent, 0.0)
    on = where @ net.machine_of  # [K, T, M]
    out = jnp.einsum("kij,kim->km", crossing, on)
    into = jnp.einsum("kij,kjm->km", crossing, on)
    rate = jnp.minimum(_least(net.slot_cpu, in_slot), _least(net.machine_cpu, on_machine))
    rate = jnp.minimum(rate, jnp.minimum(_least(net.card[:, 0], out), _least(net.card[:, 1], into)))
    gain = jnp.broadcast_to(net.gain * net.task_mask, placed.shape)
    return Estimate(rate, _delay(net, placed, gain, gain[:, :, None] * net.share, levels))


def _least(capacity: Array, load: Array) -> Array:
    return jnp.where(load > 0, capacity / jnp.where(load > 0, load, 1.0), jnp.inf).min(-1)


def _delay(net: Net, placed: Array, rate: Array, flowing: Array, levels: int) -> Array:
    """Return the mean delay to the sinks, given the tuples that flow between tasks [K, T, T]."""
    distance = net.distance[placed[:, :, None], placed[:, None, :]]
    taken = rate[:, None, :]
    weight = jnp.where(taken > 0, flowing / jnp.where(taken > 0, taken, 1.0), 0.0)
    here = (weight * distance).sum(1)
    delay = jnp.zeros_like(rate)
    for _ in range(levels - 1):
        delay = here + jnp.einsum("kij,ki->kj", weight, delay)
    at_sinks = rate * net.sink * net.task_mask
    total = at_sinks.sum(-1)
    return jnp.where(total > 0, (at_sinks * delay).sum(-1) / jnp.where(total > 0, total, 1.0), 0.0)


class _Round(NamedTuple):
    rate: Array  # [K, T]
    reached: Array  # [K]
    active: Array  # [K]
    number: Array


def _settle(net: Net, where: Array, placed: Array, levels: int, rounds: int) -> tuple[Array, Array]:
    """Run rounds until the sinks' rate stops rising; return the rates of tasks and sinks."""
    cost = jnp.einsum("kts,t->ks", where, net.cpu)
    per_slot = _reciprocal(cost)
    per_machine = _reciprocal(cost @ net.machine_of)

    def step(state: _Round) -> _Round:
        used = jnp.einsum("kts,kt->ks", where, state.rate * net.cpu)
        free = jnp.maximum((net.machine_cpu - used @ net.machine_of) * per_machine, 0.0)
        gain = jnp.minimum((net.slot_cpu - used) * per_slot, free[:, net.slot_machine])
        limit = jnp.minimum(state.rate + jnp.take_along_axis(gain, placed, 1) + net.bonus, UNLIMITED) * net.task_mask
        rate = _flow_down(net, limit, levels)
        reached = (rate * net.sink).sum(-1)
        rate = _feel_receivers(net, rate)
        running = state.active
        return _Round(
            jnp.where(running[:, None], rate, state.rate),
            jnp.where(running, reached, state.reached),
            running & (reached - state.reached > THRESHOLD),
            state.number + 1,
        )

    rows = placed.shape[0]
    begin = _Round(jnp.zeros(placed.shape), jnp.zeros(rows), jnp.ones(rows, bool), jnp.array(0))
    end = lax.while_loop(lambda state: state.active.any() & (state.number < rounds), step, begin)
    return end.rate, end.reached


def _reciprocal(cost: Array) -> Array:
    return jnp.where(cost > 0, 1.0 / jnp.where(cost > 0, cost, 1.0), 0.0)


def _flow_down(net: Net, limit: Array, levels: int) -> Array:
    """Pass tuples downstream, at most its limit by each task."""
    rate = jnp.where(net.source > 0, limit, 0.0)
    for level in range(1, levels):
        passed = jnp.minimum(limit, rate @ net.even)
        rate = jnp.where((net.level == level) & (net.source == 0), passed, rate)
    return rate


def _feel_receivers(net: Net, rate: Array) -> Array:
    """Multiply the rates of tasks, except sinks, by the mean fraction that their receivers accepted."""
    inflow = rate @ net.even
    taken = jnp.where((net.source > 0) | (inflow <= 0), 1.0, rate / jnp.where(inflow > 0, inflow, 1.0))
    return jnp.where(net.sink > 0, rate, rate * (taken @ net.even.T))
