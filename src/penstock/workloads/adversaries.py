"""Adversarial arrivals at the queues of one link: matrices of tuples [slots, N] for measuring competitive ratios.

In each slot tuples arrive, then the link sends one. Random cases are small and temporarily overloaded, because there an
offline optimum differs from an online rule. The staircase reacts to the backlogs of a rule; the overtaken queue is
hard for rules that ignore backlogs.
"""

from collections.abc import Callable, Iterator

import numpy as np

from penstock.workloads.arrivals import Counts

BURST = 4  # mean length of a burst, in slots

Send = Callable[[Counts], int]
"""Maps the backlogs of a slot, including its arrivals, to the queue that sends; an empty one or -1 wastes the slot."""


def bernoulli(slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    """Draw one tuple or none for every queue and slot; `load` is the total tuples per slot, at most `queues`."""
    return (rng.random((slots, queues)) < load / queues).astype(np.int64)


def bursts(slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    """Draw bursts of one tuple per slot at one queue; their lengths are geometric, and they may overlap."""
    found = np.zeros((slots, queues), dtype=np.int64)
    for begin, queue in np.argwhere(rng.random((slots, queues)) < load / (queues * BURST)):
        found[begin : begin + rng.geometric(1.0 / BURST), queue] += 1
    return found


def batches(slots: int, queues: int, load: float, rng: np.random.Generator, largest: int = 5) -> Counts:
    """Draw batches of 1 to `largest` tuples that arrive at one queue in one slot."""
    mean = (1 + largest) / 2
    come = rng.random((slots, queues)) < load / (queues * mean)
    return np.asarray(np.where(come, rng.integers(1, largest + 1, (slots, queues)), 0), dtype=np.int64)


def random_cases(number: int, seed: int, queues: int = 8, slots: int = 40) -> Iterator[Counts]:
    """Draw cases of 2 to `queues` queues and up to `slots` slots, of three kinds in turn, at loads of 0.5 to 2."""
    rng = np.random.default_rng(seed)
    kinds = (bernoulli, bursts, batches)
    for case in range(number):
        shape = int(rng.integers(2, slots + 1)), int(rng.integers(2, queues + 1))
        yield kinds[case % len(kinds)](*shape, float(rng.uniform(0.5, 2.0)), rng)


def staircase(queues: int, send: Send, depth: int = 1) -> Counts:
    """Play against a rule so that one of its backlogs reaches H_N times `depth`, the offline optimum.

    At first every queue gets `depth` tuples. Then, for m = N, …, 2 queues in play: no tuple arrives for (m - 1)·depth
    slots, in which an offline schedule empties any m - 1 of them, and then each of the m - 1 queues with the largest
    backlogs under the rule gets `depth` again. The rule has sent at most (m - 1)·depth tuples meanwhile, so the mean
    backlog in play has grown by at least depth/m: to depth·(1 + 1/N + … + 1/2) in the end, for every rule. One more
    tuple arrives with each refill, which is the one sent in that slot. Depth 1 is the hardest, because single tuples
    cannot be taken evenly from many queues: largest backlog first then reaches 1 + ⌊log2 N⌋.
    """
    backlog = np.zeros(queues, dtype=np.int64)
    rows: list[Counts] = []

    def play(arrivals: Counts) -> None:
        nonlocal backlog
        rows.append(arrivals)
        backlog = backlog + arrivals
        queue = send(backlog.copy())
        if queue >= 0 and backlog[queue] > 0:
            backlog[queue] -= 1

    def refill(chosen: Counts) -> None:
        arrivals = np.zeros(queues, dtype=np.int64)
        arrivals[chosen] = depth
        arrivals[chosen[0]] += 1
        play(arrivals)

    active = np.arange(queues)
    refill(active)
    for left in range(queues - 1, 0, -1):
        for _ in range(left * depth):
            play(np.zeros(queues, dtype=np.int64))
        active = active[np.argsort(-backlog[active], kind="stable")][:left]
        refill(active)
    return np.array(rows)


def overtaken_queue(queues: int, depth: int = 1) -> Counts:
    """Fill all queues but the last with `depth` tuples, then send one tuple per slot to the last.

    An offline schedule sends each arriving tuple, and no backlog exceeds `depth`. A rule that decides by age or in turn
    leaves up to N - 1 times as much in the last queue.
    """
    found = np.zeros((queues * depth + 1, queues), dtype=np.int64)
    found[0, :-1] = depth
    found[:, -1] = 1
    return found
