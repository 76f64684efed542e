"""TATA's network as published, in JAX, and parts of ours that can be added to it to see what holds it back.

Task graph and slot graph are encoded as GraphSAGE does, with separate views upstream and downstream (1)-(3). A GRU, fed
with a task's embedding and the mean embedding of the slots of its upstream tasks (5), and attention over all tasks give
a context, from which the slots are scored (6)-(8). `policies.placement.learned.published_network` is the same in NumPy.

The learned baseline (Ni et al.) is the same with slots that have a number only: a fixed number of them, all alike.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from penstock.learn.estimators import Net
from penstock.learn.networks import CLIP, NEVER, SEEN, Rollout, State, View, choose, has_room, put, seen, start, view_of

Params = dict[str, Array]

WIDTH = 128
STEPS = 2  # K, of the encoders
NUMBERED = 16  # slots that the baseline knows
CPU, MEMORY_MB = (3.5, 1.7), (144.0, 65.0)  # mean and deviation of the paper's tasks
SLOT_CPU, SLOT_MEMORY_MB = (30.0, 6.0), (1536.0, 296.0)  # and slots
DELAY_MS = (3.0, 1.3)


class PublishedForm(NamedTuple):
    """What the network has; the default is the published one."""

    numbered: bool = False  # slots have a number instead of features (Ni et al.)
    sees_load: bool = False  # slots' keys get what our decoder sees of them
    masked: bool = False  # slots without room are not chosen


def initial(key: Array, form: PublishedForm) -> Params:
    """Return random weights."""
    half, wide = WIDTH // 2, WIDTH
    shapes: dict[str, tuple[int, int]] = {}
    for step in range(STEPS):
        before = 2 if step == 0 else wide
        for side in ("up", "down"):
            shapes[f"task{step}.{side}.each"] = (before, half)
            shapes[f"task{step}.{side}.join"] = (before + half, half)
        if not form.numbered:
            shapes[f"slot{step}.each"] = (before + 1, wide)
            shapes[f"slot{step}.join"] = (before + wide, wide)
    if form.numbered:
        shapes["slot.number"] = (NUMBERED, wide)
    if form.sees_load:
        shapes |= {"seen.in": (SEEN, wide), "seen.out": (wide, wide)}
    shapes |= {"graph": (wide, wide), "gru.input": (wide, 3 * wide), "gru.state": (wide, 3 * wide)}
    shapes |= {"query": (2 * wide, wide), "key": (wide, wide)}
    keys = jax.random.split(key, len(shapes))
    params = {
        name: jax.random.uniform(own, shape, minval=-1.0, maxval=1.0) / jnp.sqrt(shape[0])
        for own, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    biases = {f"{name}.bias": jnp.zeros(shape[1]) for name, shape in shapes.items() if name not in _WITHOUT_BIAS}
    return params | biases


_WITHOUT_BIAS = ("query", "key", "slot.number", "seen.out")


def _dense(params: Params, name: str, values: Array) -> Array:
    return jax.nn.relu(values @ params[name] + params[f"{name}.bias"])


def _mean(weights: Array, values: Array) -> Array:
    total = weights.sum(-1, keepdims=True)
    return (weights @ values) / jnp.maximum(total, 1.0)


def _standard(values: Array, of: tuple[float, float]) -> Array:
    return (values - of[0]) / of[1]


def encode_tasks(params: Params, net: Net) -> Array:
    """Return the embeddings of tasks (1). [T, WIDTH]"""
    sends = (net.even > 0).astype(jnp.float32)
    tokens = jnp.stack([_standard(net.cpu, CPU), _standard(net.memory, MEMORY_MB)], -1)
    for step in range(STEPS):
        views = []
        for side, neighbours in (("up", sends.T), ("down", sends)):
            each = _dense(params, f"task{step}.{side}.each", tokens)
            joined = jnp.concatenate([tokens, _mean(neighbours, each)], -1)
            views.append(_dense(params, f"task{step}.{side}.join", joined))
        tokens = jnp.concatenate(views, -1)
    return tokens


def encode_slots(params: Params, net: Net, slot_mask: Array) -> Array:
    """Return the embeddings of slots (2), (3). [S, WIDTH]"""
    slots = net.slot_cpu.shape[0]
    if "slot.number" in params:
        return params["slot.number"][jnp.minimum(jnp.arange(slots), NUMBERED - 1)]
    delay = _standard(net.distance, DELAY_MS)
    memory = jnp.minimum(net.slot_memory, 1e4)
    tokens = jnp.stack([_standard(net.slot_cpu, SLOT_CPU), _standard(memory, SLOT_MEMORY_MB)], -1)
    others = slot_mask[None, :] * (1.0 - jnp.eye(slots))
    for step in range(STEPS):
        weight, bias = params[f"slot{step}.each"], params[f"slot{step}.each.bias"]
        own = tokens @ weight[:-1] + bias
        each = jax.nn.relu(own[None, :, :] + delay[:, :, None] * weight[-1])  # [v, u, WIDTH]
        mean = jnp.einsum("vu,vud->vd", others, each) / jnp.maximum(others.sum(-1, keepdims=True), 1.0)
        tokens = _dense(params, f"slot{step}.join", jnp.concatenate([tokens, mean], -1))
    return tokens


def gru(params: Params, values: Array, state: Array) -> Array:
    """Return the next state of a gated recurrent unit (Cho et al. 2014)."""
    update, reset, new = jnp.split(values @ params["gru.input"] + params["gru.input.bias"], 3, -1)
    old_update, old_reset, old_new = jnp.split(state @ params["gru.state"] + params["gru.state.bias"], 3, -1)
    keep = jax.nn.sigmoid(update + old_update)
    fresh = jnp.tanh(new + jax.nn.sigmoid(reset + old_reset) * old_new)
    return keep * state + (1 - keep) * fresh


def roll_out(
    params: Params, form: PublishedForm, net: Net, row: dict[str, Array], key: Array, rows: int, greedy: bool = False
) -> Rollout:
    """Place all tasks of an instance, `rows` times at random or once greedily."""
    view = view_of(net, row)
    allowed_slots = view.slot_mask * (jnp.arange(view.slot_mask.shape[0]) < NUMBERED if form.numbered else 1)
    tasks_coded = encode_tasks(params, net)
    slots_coded = encode_slots(params, net, view.slot_mask)
    keys = slots_coded @ params["key"]
    sends = (net.even > 0).astype(jnp.float32)
    graph = jnp.where(net.task_mask[:, None] > 0, _dense(params, "graph", tasks_coded), -jnp.inf).max(0)
    nothing = {"component.left": jnp.zeros((row["level"].shape[0], 1))}

    def step(carry: tuple, at: tuple[Array, Array]) -> tuple:  # type: ignore[type-arg]
        state, hidden = carry
        task, own = at
        upstream = sends[:, task]
        placed_above = jnp.einsum("t,kts->ks", upstream, state.where) / jnp.maximum(upstream.sum(), 1.0)
        fed = tasks_coded[task] + placed_above @ slots_coded
        hidden = gru(params, fed, hidden)
        attention = jax.nn.softmax(jnp.where(net.task_mask > 0, hidden @ tasks_coded.T, NEVER), -1)
        query = jnp.concatenate([hidden, attention @ tasks_coded], -1) @ params["query"]
        logits = jnp.einsum("kd,ksd->ks", query, _keys(params, form, keys, view, state, task)) / jnp.sqrt(WIDTH)
        allowed = has_room(view, state, task) if form.masked else jnp.ones(logits.shape, bool)
        logits = jnp.where(allowed & (allowed_slots > 0), CLIP * jnp.tanh(logits), NEVER)
        slot, log_probability, entropy = choose(logits, own, greedy)
        present = net.task_mask[task]
        state = put(view, nothing, state, task, slot)
        return (state, hidden), (slot, log_probability * present, entropy * present)

    tasks = jnp.arange(net.cpu.shape[0])
    begin = start(view, rows, 1), jnp.broadcast_to(graph, (rows, WIDTH))
    made: tuple[Array, Array, Array] = lax.scan(step, begin, (tasks, jax.random.split(key, len(tasks))))[1]
    placed, log_probability, entropy = made
    return Rollout(placed.T, log_probability.sum(0), entropy.sum(0) / net.task_mask.sum())


def _keys(params: Params, form: PublishedForm, keys: Array, view: View, state: State, task: Array) -> Array:
    if not form.sees_load:
        return jnp.broadcast_to(keys, (state.load.shape[0], *keys.shape))
    return keys + _dense(params, "seen.in", seen(view, state, task)) @ params["seen.out"]
