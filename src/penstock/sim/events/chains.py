"""Chains of frames: what a lane sends after a move does not overtake what it sent before.

The runtime numbers what a channel carries, and a receiver holds what comes too early until the rest is there
(`runtime.inbox`). Along one way frames keep their order by themselves. So only a lane whose way changes while frames
are on it has them in a chain, behind which it puts those that it sends from then on; a frame that comes before it is
the first of its chain waits for those ahead. The chain ends when all of it has come.

A frame knows the one behind it by its last row, which has no other use for that while the frame is on its way.
"""

from itertools import pairwise

import numpy as np

from penstock.model.kernel import lean
from penstock.sim.events.ground import Ground
from penstock.sim.events.state import (
    AFTER,
    AWAITED,
    CAME,
    COUNT,
    HEAD,
    LANE,
    LAST,
    LATEST,
    NEXT,
    NONE,
    STEP,
    State,
)
from penstock.sim.events.system import System


def make_chains(system: System, state: State, was: Ground, ground: Ground) -> None:
    """Put what is on its way into chains, on lanes whose way is another after a move; those with a chain keep it."""
    changed = (was.way != ground.way) & (state.lanes[:, AWAITED] < 0)
    found: dict[int, list[tuple[int, int, int]]] = {}
    for pipe in np.flatnonzero(state.lists[system.in_pipes :, COUNT]).tolist():
        frame = int(state.lists[system.in_pipes + pipe, HEAD])
        for place in range(int(state.lists[system.in_pipes + pipe, COUNT])):
            lane = int(state.rows[frame, LANE])
            if changed[lane]:
                found.setdefault(lane, []).append((-int(state.rows[frame, STEP]), place, frame))
            frame = int(state.rows[frame, NEXT])
    for lane, on_way in found.items():
        frames = [frame for *_, frame in sorted(on_way)]  # who is furthest was sent first
        for frame, behind in pairwise([*frames, NONE]):
            state.rows[state.rows[frame, LAST], AFTER] = behind
        state.lanes[lane, AWAITED], state.lanes[lane, LATEST] = frames[0], frames[-1]


def end_chain(state: State, lane: int) -> list[int]:
    """Have a lane go on without its chain; return the frames of that which have come and wait for others."""
    came, frame = [], int(state.lanes[lane, AWAITED])
    while frame >= 0:
        if state.rows[frame, STEP] == CAME:
            came.append(frame)
        frame = int(state.rows[state.rows[frame, LAST], AFTER])
    state.lanes[lane, AWAITED] = NONE
    return came


@lean
def join_chain(state: State, lane: int, frame: int) -> None:
    """Put a frame that is sent behind the chain of its lane, where it has one."""
    if state.lanes[lane, AWAITED] >= 0:
        state.rows[state.rows[state.lanes[lane, LATEST], LAST], AFTER] = frame
        state.lanes[lane, LATEST] = frame


@lean
def behind_in_chain(state: State, lane: int, frame: int) -> int:
    """Take the first frame off a chain; return the one behind it if that has come already, else NONE."""
    behind = state.rows[state.rows[frame, LAST], AFTER]
    state.lanes[lane, AWAITED] = behind
    if behind >= 0 and state.rows[behind, STEP] == CAME:
        return int(behind)
    return NONE
