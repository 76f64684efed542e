"""Chains of frames, which keep the order of a lane's frames when a move changes its path.

The runtime numbers the frames of a channel, and a receiver holds early ones until the others have arrived
(`runtime/worker/input.py`). Frames on one path stay in order anyway. So only a lane whose path changes while frames are
on it puts these into a chain, followed by those that it sends later; a frame that arrives before the first of its chain
waits for those ahead. The chain ends when all of its frames have arrived.

A frame refers to the next one in its last row's link, which is otherwise unused while the frame is in transit.
"""

from itertools import pairwise

import numpy as np

from penstock.model.kernel import lean
from penstock.sim.events.layout import Layout
from penstock.sim.events.state import AFTER, AWAITED, CAME, COUNT, HEAD, LANE, LAST, LATEST, NEXT, NONE, STEP, TwinState
from penstock.sim.events.system import TwinSystem


def make_chains(system: TwinSystem, state: TwinState, was: Layout, layout: Layout) -> None:
    """Put frames in transit into chains, on lanes whose paths a move changes; existing chains are kept."""
    changed = (was.path != layout.path) & (state.lanes[:, AWAITED] < 0)
    found: dict[int, list[tuple[int, int, int]]] = {}
    for pipe in np.flatnonzero(state.lists[system.in_pipes :, COUNT]).tolist():
        frame = int(state.lists[system.in_pipes + pipe, HEAD])
        for place in range(int(state.lists[system.in_pipes + pipe, COUNT])):
            lane = int(state.rows[frame, LANE])
            if changed[lane]:
                found.setdefault(lane, []).append((-int(state.rows[frame, STEP]), place, frame))
            frame = int(state.rows[frame, NEXT])
    for lane, in_transit in found.items():
        frames = [frame for *_, frame in sorted(in_transit)]  # the furthest was sent first
        for frame, behind in pairwise([*frames, NONE]):
            state.rows[state.rows[frame, LAST], AFTER] = behind
        state.lanes[lane, AWAITED], state.lanes[lane, LATEST] = frames[0], frames[-1]


def end_chain(state: TwinState, lane: int) -> list[int]:
    """Remove a lane's chain; return its frames that have arrived and are waiting for others."""
    came, frame = [], int(state.lanes[lane, AWAITED])
    while frame >= 0:
        if state.rows[frame, STEP] == CAME:
            came.append(frame)
        frame = int(state.rows[state.rows[frame, LAST], AFTER])
    state.lanes[lane, AWAITED] = NONE
    return came


@lean
def join_chain(state: TwinState, lane: int, frame: int) -> None:
    """Append a frame to the chain of its lane, if there is one."""
    if state.lanes[lane, AWAITED] >= 0:
        state.rows[state.rows[state.lanes[lane, LATEST], LAST], AFTER] = frame
        state.lanes[lane, LATEST] = frame


@lean
def behind_in_chain(state: TwinState, lane: int, frame: int) -> int:
    """Remove the first frame of a chain; return the next one if it has already arrived, else NONE."""
    behind = state.rows[state.rows[frame, LAST], AFTER]
    state.lanes[lane, AWAITED] = behind
    if behind >= 0 and state.rows[behind, STEP] == CAME:
        return int(behind)
    return NONE
