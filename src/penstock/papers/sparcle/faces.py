"""Figure 6: face detection on field machines and a cloud, against the bandwidth of the field.

The drawing of the testbed is missing in the text. Our reading is a star of shared links around a router, four field
machines, the camera on one and the consumer of the faces on another; tasks may use all of the cloud's 4 × 3.8 GHz. If
ties go to the lowest number, the order of machines matters: the field's come first. Algorithm 2 is also run for every
order.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import msgspec
import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row, select
from penstock.experiments.pictures import Picture, finish
from penstock.experiments.statistics import signed
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.taskgraph import Floats
from penstock.papers.sparcle import names
from penstock.papers.sparcle.runs import APART, rate
from penstock.papers.sparcle.summaries import column, curve, half_to_twice, legend_below
from penstock.planning.planner import Decision, Planner
from penstock.workloads.applications import face_detection
from penstock.workloads.clusters import field_and_cloud

BANDWIDTHS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0)
QUICK_BANDWIDTHS = (0.5, 4.0, 10.0, 22.0)
LITTLE, MIDDLE, MUCH = 0.5, 10.0, 22.0  # Mbps, mentioned in the paper
DRAWS = 20  # runs of random policies, whose mean counts
CAMERA, CONSUMER = "field1", "field2"
APART_ENDS, TOGETHER, ONE_CORE = "ends apart", "ends together", "ends apart, one core a task"
READINGS: Mapping[str, str] = {APART_ENDS: CONSUMER, TOGETHER: CAMERA, ONE_CORE: CONSUMER}
"""Machine of the consumer; the paper specifies neither it nor how many of the cloud's cores a task may use."""


def _cases(quick: bool) -> list[Case]:
    bandwidths = QUICK_BANDWIDTHS if quick else BANDWIDTHS
    return [{"reading": reading, "field_mbps": field, "seed": 0} for reading in READINGS for field in bandwidths]


def run_faces(one: Case) -> Sequence[Row]:
    """Run every policy and return a row: rates, SPARCLE's number of tasks in the field, its rates by machine order."""
    reading = str(one["reading"])
    cluster = field_and_cloud(field_mbps=float(one["field_mbps"]), pooled=reading != ONE_CORE)
    application = face_detection(CAMERA, READINGS[reading])
    planner = Planner(application, cluster, Objective.THROUGHPUT, seed=int(one["seed"]) + APART)
    decisions = {name: planner.decide(names.POLICIES[name]) for name in names.EVERY}
    rates = {name: rate(decision) for name, decision in decisions.items()}
    for name in (names.GR, names.RANDOM):
        rates[name] = _mean_rate(planner, names.POLICIES[name])
    in_field = {f"{name}_in_field": _in_field(planner, decisions[name]) for name in names.OURS}
    return [{**rates, **in_field, **_by_order(planner, rates[names.CLOUD])}]


def _by_order(planner: Planner, cloud: float) -> Row:
    """Return the rates of Algorithm 2 over all orders of the machines: ties go to the lowest number."""
    found = []
    for machines in permutations(planner.cluster.machines):
        cluster = msgspec.structs.replace(planner.cluster, machines=machines)
        found.append(rate(replace(planner, cluster=cluster).decide(names.POLICIES[names.CANONICAL])))
    ratios = Counter(f"{own / cloud:.1f}" for own in found)
    texts = ", ".join(f"{ratio} in {number}" for ratio, number in sorted(ratios.items(), key=lambda one: float(one[0])))
    return {"lowest": min(found), "highest": max(found), "to_cloud_by_order": texts}


def _mean_rate(planner: Planner, policy: str) -> float:
    """Return the mean rate of a random policy."""
    return float(np.mean([rate(replace(planner, seed=planner.seed + n).decide(policy)) for n in range(DRAWS)]))


def _in_field(planner: Planner, decision: Decision) -> int:
    """Return the number of unpinned tasks in the field."""
    if not isinstance(decision.result, Placement):
        return 0
    view = planner.view
    cloud = planner.cluster.machine_index["cloud"]
    machines = view.slots.machine[np.array(decision.result.slots)]
    return int(((machines != cloud) & (view.pins < 0)).sum())


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(10, 5)
    left, right = picture.subplots(1, 2)
    own = select(rows, reading=APART_ENDS).sort_values("field_mbps")
    for policy in names.EVERY:
        curve(left, own["field_mbps"].to_list(), own[policy].to_list(), policy)
        curve(right, own["field_mbps"].to_list(), (own[policy] / own[names.OPTIMUM]).to_list(), policy)
    across = "field bandwidth (Mbps)"
    finish(left, across, "rate (images/s)", "rate", legend=False)
    finish(right, across, "rate / optimum", "relative to the optimum", legend=False)
    for axis in (left, right):
        axis.set_ylim(bottom=0)
    legend_below(picture, left, columns=6)


def _at(rows: pd.DataFrame, field: float) -> pd.DataFrame:
    return select(rows, field_mbps=field)


def _over(rows: pd.DataFrame, field: float, policy: str = names.CANONICAL, other: str = names.CLOUD) -> float:
    """Return the rate of a policy relative to another's at a bandwidth."""
    own = _at(rows, field)
    return float(column(own, policy)[0] / column(own, other)[0])


def _gains(rows: pd.DataFrame, policy: str, other: str) -> Floats:
    """Return the relative gain of a policy over another at every bandwidth."""
    gains: Floats = column(rows, policy) / column(rows, other) - 1
    return gains


def _range(values: Floats) -> str:
    return f"{values.min():.3f} to {values.max():.3f}"


def _equal_claim(own: pd.DataFrame) -> Claim:
    share = column(own, names.CANONICAL) / column(own, names.OPTIMUM)
    defaults = column(own, names.SPARCLE) / column(own, names.OPTIMUM)
    refined = column(own, names.REFINED) / column(own, names.OPTIMUM)
    worst = float(own["field_mbps"].to_numpy()[int(np.argmin(share))])
    best = column(own, "highest") / column(own, names.OPTIMUM)
    return Claim(
        "SPARCLE equals the optimum at every bandwidth",
        "equal",
        f"{_range(share)} of it, least at {worst:g} Mbps",
        "within 1 % at every bandwidth",
        bool(share.min() >= 0.99),
        "ties decide: if a link that is already loaded limits all choices, (2) rates several machines alike, and "
        f"the lowest number wins. With the best order of the machines it has {_range(best)} of the optimum. Our "
        f"default, which prefers the machines of neighbours in ties, has {_range(defaults)}, refined "
        f"{_range(refined)}",
    )


def _claims(rows: pd.DataFrame) -> list[Claim]:
    own = select(rows, reading=APART_ENDS)
    little, much = _over(own, LITTLE), _over(own, MUCH) - 1
    middle = _over(own, MIDDLE)
    left = {name: int(_at(own, MIDDLE)[f"{name}_in_field"].iloc[0]) for name in (names.CANONICAL, names.SPARCLE)}
    return [
        _equal_claim(own),
        Claim(
            "≈ 9 times the cloud at 0.5 Mbps",
            "9 ×",
            f"{little:.1f} ×",
            "8 to 10 times",
            8.0 <= little <= 10.0,
            "no order of the machines gives 9 on this network, whose drawing is lost: the ratio is "
            f"{_at(own, LITTLE)['to_cloud_by_order'].iloc[0]} orders. The optimum and our default "
            f"({_over(own, LITTLE, names.OPTIMUM):.1f} and {_over(own, LITTLE, names.SPARCLE):.1f}) resize images at "
            "the camera and do all else in the cloud, so that 182 kB instead of 3.1 MB an image leave the camera",
        ),
        Claim(
            "only the cloud at 10 Mbps, which is optimal",
            "only",
            f"{left[names.CANONICAL]} of 4 tasks in the field, {middle:.2f} of the cloud's rate",
            "none",
            left[names.CANONICAL] == 0,
            "sending raw images from the camera is the limit, so that placements with small tasks in the field tie "
            "with the cloud; the lowest number, the camera's machine, wins, and denoised images come back over the "
            f"camera's link. Our default leaves {left[names.SPARCLE]} of 4 in the field, at "
            f"{_over(own, MIDDLE, names.SPARCLE):.2f} of the cloud's rate",
        ),
        Claim(
            "better than the cloud at 22 Mbps",
            "+23 %",
            signed(much, 0),
            "half to twice as much",
            half_to_twice(much, 0.23),
            f"the optimum has {signed(_over(own, MUCH, names.OPTIMUM) - 1, 0)}: more is not possible by (1a) on one "
            "path here",
        ),
        Claim(
            "check: by (1a) on one path it is +17 % at 22 Mbps",
            "+17 %",
            signed(much, 1),
            "±2 points",
            abs(much - 0.17) <= 0.02,
        ),
        *_best_over(rows),
    ]


def _best_over(rows: pd.DataFrame) -> list[Claim]:
    """Check SPARCLE's maximum gain over the others."""
    made = []
    own, apart = select(rows, reading=APART_ENDS), select(rows, reading=ONE_CORE)
    slow = column(own, names.T_STORM)
    reasons = {
        names.HEFT: "no placement is above our HEFT by more than "
        f"{signed(_gains(own, names.OPTIMUM, names.HEFT).max(), 0)}: a task in the cloud runs five times as fast as "
        "in the field, so that the earliest end of one image, HEFT's goal, puts nearly the same tasks there as the "
        "highest rate does. If a task may use only one of the cloud's four cores, HEFT puts three or four tasks on "
        f"one core, and our default is up to {signed(_gains(apart, names.SPARCLE, names.HEFT).max(), 0)} above it. "
        "The losses are SPARCLE's ties at low bandwidth, above",
        names.T_STORM: "T-Storm, blind to speeds and links, puts one task on each machine, so that a field machine "
        f"limits it to {slow.max():.2f} images/s at all bandwidths, while SPARCLE's rate rises. The paper speaks of "
        f"limited bandwidth: at {LITTLE:g} Mbps our default is "
        f"{signed(_over(own, LITTLE, names.SPARCLE, names.T_STORM) - 1, 0)} above T-Storm, and "
        f"{signed(_over(apart, LITTLE, names.SPARCLE, names.T_STORM) - 1, 0)} if a task may use only one of the "
        "cloud's cores",
        names.VNE: "",
    }
    for other, paper in ((names.HEFT, 3.0), (names.T_STORM, 0.63), (names.VNE, 13.5)):
        gains = _gains(own, names.CANONICAL, other)
        at = own["field_mbps"].to_numpy()[int(np.argmax(gains))]
        made.append(
            Claim(
                f"maximum gain over {other.upper() if other != names.T_STORM else 'T-Storm'}",
                signed(paper, 0),
                f"{signed(gains.max(), 0)} at {at:g} Mbps; {signed(gains.min(), 0)} at least",
                "half to twice as much",
                half_to_twice(float(gains.max()), paper),
                reasons[other],
            )
        )
    heft = _gains(own, names.CANONICAL, names.HEFT)
    made.append(
        Claim(
            "check: above HEFT by 20 to 33 %",
            "+20 to +33 %",
            f"{signed(heft.min(), 0)} to {signed(heft.max(), 0)}",
            "the greatest within +15 to +40 %",
            0.15 <= float(heft.max()) <= 0.40,
            "our HEFT ends a batch of one image early",
        )
    )
    return made


FIGURES: Sequence[Figure] = (
    Figure("6", "Figure 6: face detection against the bandwidth of the field", _cases, run_faces, _draw, _claims),
)
