"""Penstock's network in JAX: a transformer over components and machines, and a decoder that sees each slot's state.

The decoder places one task after another, in topological order. It sees, for each slot, the load of slot and machine
with the task, the remaining memory, the neighbours of the task in the slot, in its process and on its host, and what
else is there. A slot without room for the task is masked. `policies.placement.learned.network` is the same in NumPy.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from penstock.learn.estimators import Net

Params = dict[str, Array]

CLIP = 10.0  # of scores, as in the paper
NEVER = -1e9
SEEN = 12  # features of a slot


class Form(NamedTuple):
    """The size of the network."""

    width: int = 96
    layers: int = 3
    heads: int = 4
    hidden: int = 64  # of the decoder


class Rollout(NamedTuple):
    """K placements of an instance."""

    placed: Array  # [K, T]
    log_probability: Array  # [K]
    entropy: Array  # [K] mean per task


def initial(key: Array, form: Form, component_features: int, machine_features: int) -> Params:
    """Return random weights; features without the shared ones and the weight of throughput."""
    d, h = form.width, form.hidden
    shapes = {
        "component.in": (component_features, d),
        "machine.in": (machine_features, d),
        "component.score": (d, h),
        "component.pair": (d, h),
        "component.left": (d, h),
        "machine.score": (d, h),
        "machine.pair": (d, h),
        "slot.in": (SEEN, h),
        "slot.hidden": (h, h),
        "slot.out": (h, 1),
    }
    for layer in range(form.layers):
        shapes[f"layer{layer}.attend"] = (d, 3 * d)
        shapes[f"layer{layer}.join"] = (d, d)
        shapes[f"layer{layer}.up"] = (d, 2 * d)
        shapes[f"layer{layer}.down"] = (2 * d, d)
    keys = jax.random.split(key, len(shapes))
    params = {
        name: jax.random.normal(own, shape) / jnp.sqrt(shape[0])
        for own, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    params["slot.out"] = params["slot.out"] * 0.1
    zeros = {"component.in.bias": d, "machine.in.bias": d, "slot.in.bias": h, "slot.hidden.bias": h}
    params |= {name: jnp.zeros(size) for name, size in zeros.items()}
    for layer in range(form.layers):
        params |= {f"layer{layer}.{part}.scale": jnp.ones(d) for part in ("attend", "up")}
        params |= {f"layer{layer}.up.bias": jnp.zeros(2 * d), f"layer{layer}.relation": jnp.zeros((3, form.heads))}
    return params | {"out.scale": jnp.ones(d)}


def normalised(values: Array, scale: Array) -> Array:
    """Scale every token to mean square 1."""
    return values * scale / jnp.sqrt((values * values).mean(-1, keepdims=True) + 1e-6)


def layer_count(params: Params) -> int:
    """Return the number of the encoder's layers."""
    return sum(name.endswith(".attend") for name in params)


def encode(params: Params, row: dict[str, Array], weight: Array) -> dict[str, Array]:
    """Return what the decoder needs of components [C, h] and machines [M, h]; `weight` is that of throughput."""
    shared = jnp.concatenate([row["shared_features"], weight[None]])
    components, machines = row["component_features"], row["machine_features"]
    parts = []
    for name, features in (("component", components), ("machine", machines)):
        every = jnp.broadcast_to(shared, (features.shape[0], shared.shape[0]))
        parts.append(jnp.concatenate([features, every], -1) @ params[f"{name}.in"] + params[f"{name}.in.bias"])
    tokens = jnp.concatenate(parts)
    mask = jnp.concatenate([row["component_mask"], row["machine_mask"]])
    relation = _relations(row)
    for layer in range(layer_count(params)):
        tokens = tokens + _attend(params, f"layer{layer}", tokens, mask, relation)
        inner = normalised(tokens, params[f"layer{layer}.up.scale"]) @ params[f"layer{layer}.up"]
        tokens = tokens + jax.nn.relu(inner + params[f"layer{layer}.up.bias"]) @ params[f"layer{layer}.down"]
    tokens = normalised(tokens, params["out.scale"])
    component, machine = tokens[: components.shape[0]], tokens[components.shape[0] :]
    return {
        "component.score": component @ params["component.score"],
        "component.pair": component @ params["component.pair"],
        "component.left": component @ params["component.left"],
        "machine.score": machine @ params["machine.score"],
        "machine.pair": machine @ params["machine.pair"],
    }


def _relations(row: dict[str, Array]) -> Array:
    """Return how tokens are related: downstream, upstream, on the same host. [3, N, N]"""
    components, machines = row["component_features"].shape[0], row["machine_features"].shape[0]
    host = jnp.full(machines, -2).at[row["slot_machine"]].max(jnp.where(row["slot_mask"] > 0, row["slot_host"], -2))
    same = ((host[:, None] == host[None, :]) & (host[:, None] >= 0)).astype(jnp.float32)
    relation = jnp.zeros((3, components + machines, components + machines))
    relation = relation.at[0, :components, :components].set(row["down"])
    relation = relation.at[1, :components, :components].set(row["down"].T)
    return relation.at[2, components:, components:].set(same)


def _attend(params: Params, layer: str, tokens: Array, mask: Array, relation: Array) -> Array:
    heads = params[f"{layer}.relation"].shape[1]
    number, width = tokens.shape
    mixed = normalised(tokens, params[f"{layer}.attend.scale"]) @ params[f"{layer}.attend"]
    query, key, value = jnp.moveaxis(mixed.reshape(number, 3, heads, width // heads), 1, 0)
    logits = jnp.einsum("ihd,jhd->hij", query, key) / jnp.sqrt(width / heads)
    logits = logits + jnp.einsum("rij,rh->hij", relation, params[f"{layer}.relation"])
    attention = jax.nn.softmax(jnp.where(mask > 0, logits, NEVER), -1)
    return jnp.einsum("hij,jhd->ihd", attention, value).reshape(number, width) @ params[f"{layer}.join"]


class View(NamedTuple):
    """What the decoder computes once per instance; T tasks, S slots."""

    net: Net
    component: Array  # [T]
    next_to: Array  # [T, T] part of a task's tuples that it exchanges with another
    same: Array  # [3, S, S] the same slot, process, host
    norm: Array  # from load to utilisation, if load were balanced
    slot_mask: Array  # [S]
    mean_memory: Array
    per_slot: Array  # mean number of tasks
    width: Array  # [T] tasks of its component


def view_of(net: Net, row: dict[str, Array]) -> View:
    """Prepare an instance for the decoder."""
    work = net.cpu * net.gain * net.task_mask
    usable = jnp.minimum((net.slot_cpu * row["slot_mask"]) @ net.machine_of, net.machine_cpu).sum()
    flow = net.gain[:, None] * net.share
    both = flow + flow.T
    total = both.sum(1, keepdims=True)
    process = row["slot_process"][:, None] == row["slot_process"][None, :]
    host = row["slot_host"][:, None] == row["slot_host"][None, :]
    component = row["component"]
    alike = (component[:, None] == component[None, :]) * net.task_mask
    return View(
        net=net,
        component=component,
        next_to=jnp.where(total > 0, both / jnp.where(total > 0, total, 1.0), 0.0),
        same=jnp.stack([jnp.eye(net.slot_cpu.shape[0]), process.astype(jnp.float32), host.astype(jnp.float32)]),
        norm=jnp.where(work.sum() > 0, usable / jnp.maximum(work.sum(), 1e-30), 0.0),
        slot_mask=row["slot_mask"],
        mean_memory=row["mean_memory"],
        per_slot=net.task_mask.sum() / row["slot_mask"].sum(),
        width=alike.sum(1),
    )


class State(NamedTuple):
    """The tasks placed so far, in K placements."""

    where: Array  # [K, T, S]
    load: Array  # [K, S]
    memory: Array  # [K, S] in use
    number: Array  # [K, S] of tasks
    left: Array  # [K, S, h] what the tasks of a slot left there


def start(view: View, rows: int, hidden: int) -> State:
    """Return the state without any placed task."""
    tasks, slots = view.component.shape[0], view.net.slot_cpu.shape[0]
    empty = jnp.zeros((rows, slots))
    return State(jnp.zeros((rows, tasks, slots)), empty, empty, empty, jnp.zeros((rows, slots, hidden)))


def seen(view: View, state: State, task: Array) -> Array:
    """Return what the decoder sees of each slot for a task. [K, S, SEEN]"""
    net = view.net
    work, memory = net.cpu[task] * net.gain[task] * view.norm, net.memory[task]
    load = state.load * view.norm
    machine = (load @ net.machine_of)[:, net.slot_machine]
    usable = jnp.minimum((net.slot_cpu * view.slot_mask) @ net.machine_of, net.machine_cpu)[net.slot_machine]
    free = _free_memory(view, state)
    near = jnp.einsum("t,kts->ks", view.next_to[task], state.where)
    alike = jnp.einsum("t,kts->ks", (view.component == view.component[task]).astype(jnp.float32), state.where)
    by_distance = jnp.einsum("dsr,kr->dks", view.same, near)
    after, busy = (load + work) / net.slot_cpu, (machine + work) / jnp.maximum(usable, 1e-6)  # 0 if padded
    columns = [
        load / net.slot_cpu,
        after,
        jnp.maximum(after - 1.0, 0.0),
        busy,
        jnp.clip(free / view.mean_memory, 0.0, 4.0),
        jnp.clip(memory / jnp.maximum(free, 1e-6), 0.0, 1.0),
        by_distance[0],
        by_distance[1],
        by_distance[2],
        alike / view.width[task],
        state.number / view.per_slot / 4.0,
        jnp.clip(work / net.slot_cpu, 0.0, 8.0) * jnp.ones_like(load),
    ]
    return jnp.clip(jnp.stack(columns, -1), 0.0, 20.0)


def _free_memory(view: View, state: State) -> Array:
    net = view.net
    used = state.memory
    on_machine = (net.machine_memory - used @ net.machine_of)[:, net.slot_machine]
    return jnp.minimum(net.slot_memory - used, on_machine)


def has_room(view: View, state: State, task: Array) -> Array:
    """Return which slots have memory for a task, or all of them if none has. [K, S]"""
    room = (_free_memory(view, state) >= view.net.memory[task] * (1 - 1e-6)) & (view.slot_mask > 0)
    return jnp.where(room.any(-1, keepdims=True), room, view.slot_mask > 0)


def scores(params: Params, view: View, coded: dict[str, Array], state: State, task: Array) -> Array:
    """Return the score of each slot for a task. [K, S]"""
    component, machine = view.component[task], view.net.slot_machine
    static = coded["component.score"][component] + coded["machine.score"][machine]
    static = static + coded["component.pair"][component] * coded["machine.pair"][machine] + params["slot.in.bias"]
    rated: Array = _rated(params, static + state.left, seen(view, state, task))
    return rated


@jax.checkpoint  # training would otherwise keep the hidden layers of all tasks, placements and slots
def _rated(params: Params, static: Array, features: Array) -> Array:
    hidden = jax.nn.relu(static + features @ params["slot.in"])
    hidden = jax.nn.relu(hidden @ params["slot.hidden"] + params["slot.hidden.bias"])
    return CLIP * jnp.tanh((hidden @ params["slot.out"])[..., 0])


def put(view: View, coded: dict[str, Array], state: State, task: Array, slot: Array) -> State:
    """Return the state with a task in slots [K]."""
    net = view.net
    there = jax.nn.one_hot(slot, net.slot_cpu.shape[0]) * net.task_mask[task]
    left = coded["component.left"][view.component[task]] / view.per_slot
    return State(
        state.where.at[:, task].set(there),
        state.load + there * (net.cpu[task] * net.gain[task]),
        state.memory + there * net.memory[task],
        state.number + there,
        state.left + there[..., None] * left,
    )


def roll_out(
    params: Params, net: Net, row: dict[str, Array], weight: Array, key: Array, rows: int, greedy: bool = False,
    masked: bool = True,
) -> Rollout:  # fmt: skip
    """Place all tasks of an instance, `rows` times at random or once greedily."""
    view, coded = view_of(net, row), encode(params, row, weight)

    def step(state: State, at: tuple[Array, Array]) -> tuple[State, tuple[Array, Array, Array]]:
        task, own = at
        allowed = has_room(view, state, task) if masked else jnp.broadcast_to(view.slot_mask > 0, state.load.shape)
        logits = jnp.where(allowed, scores(params, view, coded, state, task), NEVER)
        slot, log_probability, entropy = choose(logits, own, greedy)
        present = net.task_mask[task]
        return put(view, coded, state, task, slot), (slot, log_probability * present, entropy * present)

    tasks = jnp.arange(net.cpu.shape[0])
    first = start(view, rows, params["slot.out"].shape[0])
    _, (placed, log_probability, entropy) = lax.scan(step, first, (tasks, jax.random.split(key, len(tasks))))
    return Rollout(placed.T, log_probability.sum(0), entropy.sum(0) / net.task_mask.sum())


def choose(logits: Array, key: Array, greedy: bool) -> tuple[Array, Array, Array]:
    """Return slots, their log-probabilities and the entropies of the choice. [K]"""
    logs = jax.nn.log_softmax(logits)
    slot = logits.argmax(-1) if greedy else jax.random.categorical(key, lax.stop_gradient(logits))
    entropy = -(jnp.exp(logs) * jnp.where(logs > NEVER / 2, logs, 0.0)).sum(-1)
    return slot, jnp.take_along_axis(logs, slot[:, None], -1)[:, 0], entropy
