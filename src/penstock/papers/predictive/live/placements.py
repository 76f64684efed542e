"""The placements to visit: the default, those of some policies, and random ones, all of which sustain the load."""

from penstock.exploration.random_placements import Drawing
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.papers.predictive.live.settings import DEFAULT, Setting
from penstock.papers.predictive.live.visits import Place
from penstock.planning.planner import Planner

POLICIES = ("t-storm", "t-heron", "r-storm", "predictive", "greedy-random")
MARGIN = 0.25  # capacity of every placement beyond its load, according to the estimator


def places(setting: Setting, number: int, seed: int) -> list[Place]:
    """Return a number of placements, the default first, without those of policies that do not sustain the load."""
    drawing = Drawing(setting.application, setting.cluster, margin=MARGIN, seed=seed)
    planner = Planner(setting.application, setting.cluster, Objective.DELAY, seed)
    found = [Place(DEFAULT, setting.default)]
    for policy in POLICIES:
        placed = planner.decide(policy).result
        if len(found) < number and isinstance(placed, Placement) and drawing.sustains(placed):
            found.append(Place(policy, placed))
    return found + [Place(f"random {turn + 1}", drawing.draw()) for turn in range(number - len(found))]
