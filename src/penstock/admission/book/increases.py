"""How much more of which elements would let a refused application in.

How much is enough of an element is found by bisection over its capacity, for the few elements that stood in the way;
where more of one alone does not help, several are raised, each time the one that then stands in the way. More is not
always better: a path may move to a faster machine that fails more often. So the answer is always an amount that was
tried as it is printed, and not one between two others.
"""

import math
from collections.abc import Mapping

from penstock.admission.book.attempts import Attempt
from penstock.admission.book.free_capacity import MEMORY, Need, Room
from penstock.admission.book.obstacles import UNITS, explained
from penstock.admission.book.trials import DIGITS, HALVINGS, LEAST, Remedy, RemedyKind, Trials, rounded_up
from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING
from penstock.model.routes import BITS
from penstock.model.taskgraph import expand_edges, expand_tasks
from penstock.model.topology import Application

MOST_ALONE = 4  # elements of which more is tried alone
MOST_TOGETHER = 6

_KINDS = {
    CPU: RemedyKind.CPU,
    MEMORY: RemedyKind.MEMORY,
    **dict.fromkeys((BANDWIDTH, SENDING, RECEIVING), RemedyKind.BANDWIDTH),
}


def more(trials: Trials, refused: Attempt) -> list[Remedy]:
    """Return the increases that would let an application in: of one element each, the smallest first, or of several."""
    found = [_more_of(trials, need) for need in in_the_way(trials, refused)[:MOST_ALONE]]
    alone = sorted((remedy for remedy in found if remedy is not None), key=_increase)
    several = None if alone else _more_of_several(trials, refused)
    return alone if several is None else [several]


def any_more(trials: Trials, refused: Attempt) -> list[Remedy]:
    """Return the elements of which any more than there is would let a best-effort application in.

    Of memory, which is held at any rate, it has to be enough.
    """
    raised = enough_of(trials, refused)
    if not raised:
        return []
    if any(need.kind == MEMORY for need in raised):
        return more(trials, refused)
    found = []
    for need, amount in raised.items():
        kind, unit, thing, measure = _measure(need)
        what = "" if need.kind in (CPU, BANDWIDTH) else f" {measure}"
        found.append(_remedy(trials, need, kind, amount / unit, f"{what} of {thing} {need.element}"))
    text = f"any more{' and'.join(remedy.text for remedy in found)} would let it in"
    return [found[0]._replace(text=text, also=tuple(found[1:]))]


def in_the_way(trials: Trials, refused: Attempt) -> list[Need]:
    """Return what limits the paths found to less than is wanted, or prevents another one.

    Not of what has failed: more of that is of no use.
    """
    wanted = trials.request.application.guaranteed_tps or 0.0
    short = explained(trials.request, refused.shortage).needs if refused.shortage is not None else ()
    needs = dict.fromkeys([*(path.limit for path in refused.paths if path.rate_tps < wanted), *short])
    return [need for need in needs if need.element not in trials.book.failed]


def enough_of(trials: Trials, refused: Attempt) -> dict[Need, float]:
    """Return how much of which elements in all is more than enough together; none where they would be too many."""
    raised: dict[Need, float] = {}
    tried: Attempt | None = refused
    while tried is None or not tried.met:
        way = in_the_way(trials, tried) if tried is not None else []
        need = next((need for need in way if need not in raised), None)
        if need is None or len(raised) == MOST_TOGETHER:
            return {}
        raised[need] = _plenty(trials, need)
        tried = trials.attempt(all_raised(trials.room, raised))
    return raised


def all_raised(room: Room, amounts: Mapping[Need, float], share: float = 1.0) -> Room:
    """Return a room whose elements have so much in all, or a share of the increase, in numbers as they are printed."""
    for need, amount in amounts.items():
        now, (_, unit, _, _) = room.whole(need), _measure(need)
        room = room.having(need, rounded_up((now + share * (amount - now)) / unit) * unit)
    return room


def _increase(remedy: Remedy) -> float:
    return remedy.after / remedy.before if remedy.before > 0 else math.inf


def _more_of(trials: Trials, need: Need) -> Remedy | None:
    """Return the least of one element with which the application would be let in; None: no amount helps."""
    plenty = all_raised(trials.room, {need: _plenty(trials, need)})
    return _least(trials, plenty, need)[0] if trials.met(plenty) else None


def _more_of_several(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return the least of several elements that is enough together; None where they would be too many."""
    raised = enough_of(trials, refused)
    if not raised:
        return None
    # First all by the same share of what each could need, then each by itself: else the first would shift the whole
    # application to the elements of which there is still plenty.
    enough = all_raised(trials.room, raised)
    low, high = LEAST, 1.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        less = all_raised(trials.room, raised, middle)
        low, high, enough = (low, middle, less) if trials.met(less) else (middle, high, enough)
    found: list[Remedy] = []
    for need in raised:
        remedy, enough = _least(trials, enough, need)
        found.append(remedy)
    return found[0]._replace(text=" and ".join(remedy.text for remedy in found), also=tuple(found[1:]))


def _least(trials: Trials, enough: Room, need: Need) -> tuple[Remedy, Room]:
    """Return the least of an element that is enough where all else is as in `enough`, and the room with that."""
    kind, unit, thing, measure = _measure(need)
    now, most = trials.room.whole(need) / unit, enough.whole(need) / unit
    after, too_little = rounded_up(most), now
    low, high = LEAST, 1.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        amount = rounded_up(now + middle * (most - now))
        if too_little < amount < after:
            less = enough.having(need, amount * unit)
            if trials.met(less):
                after, enough = amount, less
            else:
                too_little = amount
        low, high = (low, middle) if amount >= after else (middle, high)
    for digits in range(1, DIGITS):  # of amounts between these, the shortest to say
        amount = rounded_up(too_little, digits)
        if too_little < amount < after and trials.met(less := enough.having(need, amount * unit)):
            after, enough = amount, less
            break
    text = f"{thing} {need.element} would need {after:.{DIGITS}g} {measure} instead of {_apart(now, after)}"
    return _remedy(trials, need, kind, after, text), enough


def _remedy(trials: Trials, need: Need, kind: RemedyKind, after: float, text: str) -> Remedy:
    _, unit, _, _ = _measure(need)
    which = "" if need.kind in (CPU, BANDWIDTH, MEMORY) else need.kind
    return Remedy(kind, need.element, trials.room.whole(need) / unit, after, text, resource=which)


def _apart(now: float, after: float) -> str:
    """Write what there is now with as many digits as tell it from what there would have to be."""
    texts = (f"{now:.{digits}g}" for digits in range(DIGITS, 17))
    return next((text for text in texts if float(text) != after), f"{now:.17g}")


def _measure(need: Need) -> tuple[RemedyKind, float, str, str]:
    """Return of which kind more of something is, its unit in ours, what the element is called, and its unit's name."""
    unit, measure = UNITS.get(need.kind, (1.0, need.kind))
    kind = _KINDS.get(need.kind, RemedyKind.RESOURCE)
    return kind, unit, "link" if need.kind == BANDWIDTH else "machine", measure


def _plenty(trials: Trials, need: Need) -> float:
    """Return how much of an element is enough for all paths, each at the rate asked for; best effort: at 1/s."""
    application, room = trials.request.application, trials.room
    wanted = 1.0 if application.guaranteed_tps is None else application.guaranteed_tps
    load = _memory(application) if need.kind == MEMORY else _load(application, need.kind) * wanted
    taken = room.whole(need) - room.free(need)
    amount = max(room.whole(need), taken) + load * trials.request.paths
    _, unit, _, _ = _measure(need)
    return rounded_up(amount / unit) * unit


def _memory(application: Application) -> float:
    return float(expand_tasks(application).memory_mb.sum())


def _load(application: Application, kind: str) -> float:
    """Return what a source tuple takes of one kind, were all tasks on one machine or all streams to cross one link."""
    tasks = expand_tasks(application)
    if kind == CPU:
        return float((tasks.cpu * tasks.gain).sum())
    if kind in tasks.resources:
        return float((tasks.needs[:, tasks.resources.index(kind)] * tasks.gain).sum())
    edges = expand_edges(tasks)
    return float((tasks.gain[edges.source] * edges.share * edges.tuple_bytes).sum()) * BITS
