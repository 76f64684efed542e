"""Costs of the engine itself: processor time of processes that only pass tuples on, as fast as they can.

A process's time is linear in what it did: tuples created, tuples taken from a queue, tuples and bytes sent to and
received from other processes. A few runs of different shapes and sizes determine the costs by non-negative least
squares.
"""

from typing import NamedTuple

import numpy as np

from penstock.calibration.findings import Measured
from penstock.model.costs import Costs

COSTS = ("hop_cpu", "send_cpu", "send_byte_cpu", "receive_cpu", "receive_byte_cpu")
WORDS = {
    "hop_cpu": "hop",
    "send_cpu": "sending a tuple",
    "send_byte_cpu": "sending a byte",
    "receive_cpu": "receiving a tuple",
    "receive_byte_cpu": "receiving a byte",
}


class ProcessWork(NamedTuple):
    """One process of a run: its core-seconds of speed 1, and what it did."""

    seconds: float
    made: float = 0.0  # tuples created by sources, whose own work is not the engine's
    hops: float = 0.0  # tuples taken from queues
    sent: float = 0.0  # tuples to other processes
    sent_bytes: float = 0.0
    received: float = 0.0  # tuples from other processes
    received_bytes: float = 0.0


def measure_engine(worked: list[ProcessWork]) -> tuple[Costs, list[Measured]]:
    """Return the costs of hops, sending and receiving; the spread is the residual of the processes' times per tuple."""
    from scipy.optimize import nnls

    table = np.array(worked, dtype=np.float64)
    rows, seconds = table[:, 1:], table[:, 0]
    units = np.maximum(rows.max(axis=0), 1.0)
    tuples = np.maximum(rows[:, 0] + rows[:, 1], 1.0)  # per tuple, so that each process has the same weight
    values, _ = nnls(rows / units / tuples[:, None] * tuples.mean(), seconds / tuples * tuples.mean())
    values = values / units
    off = (seconds - rows @ values) / tuples
    found = dict(zip(COSTS, values[1:].tolist(), strict=True))
    measured = [
        Measured(
            what=WORDS[name],
            value=value,
            unit="s",
            spread=float(np.std(off)) / (1.0 if "byte" not in name else max(_size(worked), 1.0)),
            count=int(rows[:, place + 1].sum()),
            described=0.0,
        )
        for place, (name, value) in enumerate(found.items())
    ]
    return Costs(**found), measured


def _size(worked: list[ProcessWork]) -> float:
    """Return the bytes of the largest tuples."""
    return max((one.sent_bytes / one.sent for one in worked if one.sent > 0), default=0.0)
