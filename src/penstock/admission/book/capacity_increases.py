"""Find capacity increases that would admit a rejected application.

Bisection finds a sufficient capacity of each of the few limiting elements. If no single increase helps, several
elements are raised, each time the one that limits then. More is not always better: a path may move to a faster machine
that fails more often. Therefore the answer is always an amount that was tried exactly as printed, never an
interpolation.
"""

import math
from collections.abc import Mapping

from penstock.admission.book.free_capacity import MEMORY, FreeCapacity, Need
from penstock.admission.book.path_selection import PathSelection
from penstock.admission.book.shortages import UNITS, explain_shortage
from penstock.admission.book.trials import DIGITS, HALVINGS, MIN_SHARE, Suggestion, SuggestionKind, Trials, rounded_up
from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING
from penstock.model.routes import BITS
from penstock.model.taskgraph import expand_edges, expand_tasks
from penstock.model.topology import Application

MAX_SINGLE = 4  # elements that are tried alone
MAX_COMBINED = 6

_KINDS = {
    CPU: SuggestionKind.CPU,
    MEMORY: SuggestionKind.MEMORY,
    **dict.fromkeys((BANDWIDTH, SENDING, RECEIVING), SuggestionKind.BANDWIDTH),
}


def suggest_increases(trials: Trials, refused: PathSelection) -> list[Suggestion]:
    """Return increases that would admit an application: of single elements, the smallest first, or of several."""
    found = [_more_of(trials, need) for need in find_limits(trials, refused)[:MAX_SINGLE]]
    alone = sorted((remedy for remedy in found if remedy is not None), key=_increase)
    several = None if alone else _more_of_several(trials, refused)
    return alone if several is None else [several]


def suggest_any_increase(trials: Trials, refused: PathSelection) -> list[Suggestion]:
    """Return the elements of which any increase would admit a best-effort application.

    Memory is held at any rate, so its increase has to be sufficient.
    """
    raised = find_sufficient(trials, refused)
    if not raised:
        return []
    if any(need.kind == MEMORY for need in raised):
        return suggest_increases(trials, refused)
    found = []
    for need, amount in raised.items():
        kind, unit, thing, measure = _measure(need)
        what = "" if need.kind in (CPU, BANDWIDTH) else f" {measure}"
        found.append(_remedy(trials, need, kind, amount / unit, f"{what} of {thing} {need.element}"))
    text = f"any more{' and'.join(remedy.text for remedy in found)} would admit it"
    return [found[0]._replace(text=text, also=tuple(found[1:]))]


def find_limits(trials: Trials, refused: PathSelection) -> list[Need]:
    """Return what limits the paths found below the requested rate, or prevents another path.

    Failed elements are left out: more of their capacity does not help.
    """
    wanted = trials.request.application.guaranteed_tps or 0.0
    short = explain_shortage(trials.request, refused.shortage).needs if refused.shortage is not None else ()
    needs = dict.fromkeys([*(path.limit for path in refused.paths if path.rate_tps < wanted), *short])
    return [need for need in needs if need.element not in trials.book.failed]


def find_sufficient(trials: Trials, refused: PathSelection) -> dict[Need, float]:
    """Return totals of several elements that are more than sufficient together; empty if too many are needed."""
    raised: dict[Need, float] = {}
    tried: PathSelection | None = refused
    while tried is None or not tried.met:
        way = find_limits(trials, tried) if tried is not None else []
        need = next((need for need in way if need not in raised), None)
        if need is None or len(raised) == MAX_COMBINED:
            return {}
        raised[need] = _plenty(trials, need)
        tried = trials.attempt(raise_capacities(trials.room, raised))
    return raised


def raise_capacities(room: FreeCapacity, amounts: Mapping[Need, float], share: float = 1.0) -> FreeCapacity:
    """Return free capacity with new totals, or with a share of each increase, rounded as they are printed."""
    for need, amount in amounts.items():
        now, (_, unit, _, _) = room.whole(need), _measure(need)
        room = room.having(need, rounded_up((now + share * (amount - now)) / unit) * unit)
    return room


def _increase(remedy: Suggestion) -> float:
    return remedy.after / remedy.before if remedy.before > 0 else math.inf


def _more_of(trials: Trials, need: Need) -> Suggestion | None:
    """Return the minimum total of one element that admits the application; None if no amount helps."""
    plenty = raise_capacities(trials.room, {need: _plenty(trials, need)})
    return _least(trials, plenty, need)[0] if trials.met(plenty) else None


def _more_of_several(trials: Trials, refused: PathSelection) -> Suggestion | None:
    """Return minimum totals of several elements that suffice together; None if too many are needed."""
    raised = find_sufficient(trials, refused)
    if not raised:
        return None
    # First scale all increases together, then reduce each by itself: otherwise the first reduction would shift the
    # whole application to the elements that still have plenty.
    enough = raise_capacities(trials.room, raised)
    low, high = MIN_SHARE, 1.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        less = raise_capacities(trials.room, raised, middle)
        low, high, enough = (low, middle, less) if trials.met(less) else (middle, high, enough)
    found: list[Suggestion] = []
    for need in raised:
        remedy, enough = _least(trials, enough, need)
        found.append(remedy)
    return found[0]._replace(text=" and ".join(remedy.text for remedy in found), also=tuple(found[1:]))


def _least(trials: Trials, enough: FreeCapacity, need: Need) -> tuple[Suggestion, FreeCapacity]:
    """Return the minimum total of one element with all others as in `enough`, and the free capacity with that."""
    kind, unit, thing, measure = _measure(need)
    now, most = trials.room.whole(need) / unit, enough.whole(need) / unit
    after, too_little = rounded_up(most), now
    low, high = MIN_SHARE, 1.0
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
    for digits in range(1, DIGITS):  # of amounts between these, the one with the fewest digits
        amount = rounded_up(too_little, digits)
        if too_little < amount < after and trials.met(less := enough.having(need, amount * unit)):
            after, enough = amount, less
            break
    text = f"{thing} {need.element} would need {after:.{DIGITS}g} {measure} instead of {_apart(now, after)}"
    return _remedy(trials, need, kind, after, text), enough


def _remedy(trials: Trials, need: Need, kind: SuggestionKind, after: float, text: str) -> Suggestion:
    _, unit, _, _ = _measure(need)
    which = "" if need.kind in (CPU, BANDWIDTH, MEMORY) else need.kind
    return Suggestion(kind, need.element, trials.room.whole(need) / unit, after, text, resource=which)


def _apart(now: float, after: float) -> str:
    """Format the current amount with as many digits as distinguish it from the required one."""
    texts = (f"{now:.{digits}g}" for digits in range(DIGITS, 17))
    return next((text for text in texts if float(text) != after), f"{now:.17g}")


def _measure(need: Need) -> tuple[SuggestionKind, float, str, str]:
    """Return the kind of an increase, its unit, and the names of its element type and unit."""
    unit, measure = UNITS.get(need.kind, (1.0, need.kind))
    kind = _KINDS.get(need.kind, SuggestionKind.RESOURCE)
    return kind, unit, "link" if need.kind == BANDWIDTH else "machine", measure


def _plenty(trials: Trials, need: Need) -> float:
    """Return a total that suffices for all paths, each at the requested rate; best effort: at 1/s."""
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
    """Return the use per source tuple of one kind, with all tasks on one machine or all streams over one link."""
    tasks = expand_tasks(application)
    if kind == CPU:
        return float((tasks.cpu * tasks.gain).sum())
    if kind in tasks.resources:
        return float((tasks.needs[:, tasks.resources.index(kind)] * tasks.gain).sum())
    edges = expand_edges(tasks)
    return float((tasks.gain[edges.source] * edges.share * edges.tuple_bytes).sum()) * BITS
