"""Partial key grouping: the less loaded of two tasks, and the benefit for skewed keys."""

import numpy as np

from penstock.model.slotted import Longs
from penstock.policies.registry import routing_policy
from tests.policies.tuples.tables import route_keyed, tables

WIDTH = 8


def sent_by(name: str, own: Longs, other: Longs, outstanding: Longs) -> tuple[Longs, Longs]:
    lanes = tables(WIDTH, outstanding=outstanding).lanes
    chosen, sent = np.empty(len(own), dtype=np.int64), np.zeros(WIDTH, dtype=np.int64)
    assert route_keyed(routing_policy(name).rule.kind, lanes, 0, own, other, len(own), chosen, sent) == len(own)
    return chosen, sent


def test_every_tuple_goes_to_the_less_loaded_of_its_keys_two_tasks() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        own = rng.integers(0, WIDTH, 30)
        other = (own + rng.integers(1, WIDTH, 30)) % WIDTH
        load = rng.integers(0, 9, WIDTH)
        chosen, _ = sent_by("partial-key", own, other, load)
        for first, second, taken in zip(own, other, chosen, strict=True):
            assert taken == (second if load[second] < load[first] else first)
            load[taken] += 1


def test_two_choices_balance_skewed_keys() -> None:
    rng = np.random.default_rng(1)
    keys = np.minimum(rng.zipf(1.5, 4000), 500)
    home = rng.integers(0, WIDTH, (501, 2))
    own, other = home[keys, 0], home[keys, 1]
    loads = {name: sent_by(name, own, other, np.zeros(WIDTH, dtype=np.int64))[1] for name in ("fields", "partial-key")}
    assert (loads["fields"] == np.bincount(own, minlength=WIDTH)).all()
    assert loads["partial-key"].max() < 0.75 * loads["fields"].max()
