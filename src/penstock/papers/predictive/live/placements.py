"""Which placements are visited: the default, what some policies do, and random ones, all of which sustain the load."""

from penstock.exploration.random_placements import Drawing
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.papers.predictive.live.settings import DEFAULT, Setting
from penstock.papers.predictive.live.visits import Place
from penstock.planning.planner import Planner

POLICIES = ("t-storm", "t-heron", "r-storm", "predictive", "greedy-random")
MARGIN = 0.25  # more than its load, that every placement carries by the estimator


def places(setting: Setting, number: int, seed: int) -> list[Place]:
    """Return so many placements, the default first; policies whose placements do not sustain the load are left out."""
    drawing = Drawing(setting.application, setting.cluster, margin=MARGIN, seed=seed)
    planner = Planner(setting.application, setting.cluster, Objective.DELAY, seed)
    found = [Place(DEFAULT, setting.default)]
    for policy in POLICIES:
        placed = planner.decide(policy).result
        if len(found) < number and isinstance(placed, Placement) and drawing.sustains(placed):
            found.append(Place(policy, placed))
    return found + [Place(f"random {turn + 1}", drawing.draw()) for turn in range(number - len(found))]
