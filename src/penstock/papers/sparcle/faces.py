"""Figure 6: face detection on field machines and a cloud, against the bandwidth of the field.

The drawing of the testbed is missing in the text. Our reading is a star of shared links around a router, four field
machines, the camera on one and the consumer of the faces on another; tasks may use all of the cloud's 4 × 3.8 GHz. If
ties go to the lowest number, the order of machines matters: the field's come first, unless a case differs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row, select
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.taskgraph import Floats
from penstock.papers.sparcle.runs import (
    APART,
    CANONICAL,
    CLOUD,
    GR,
    GS,
    HEFT,
    OPTIMUM,
    OURS,
    POLICIES,
    RANDOM,
    REFINED,
    SPARCLE,
    T_STORM,
    VNE,
    rate,
)
from penstock.papers.sparcle.summaries import column, curve, finish, half_to_twice, legend_below, signed
from penstock.planning.planner import Decision, Planner
from penstock.workloads.clusters import field_and_cloud
from penstock.workloads.face_detection import face_detection

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

ASKED = (CANONICAL, SPARCLE, REFINED, GS, GR, T_STORM, VNE, HEFT, RANDOM, CLOUD, OPTIMUM)
BANDWIDTHS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0)
QUICK_BANDWIDTHS = (0.5, 4.0, 10.0, 22.0)
LITTLE, MIDDLE, MUCH = 0.5, 10.0, 22.0  # Mbps, mentioned in the paper
DRAWS = 20  # runs of random policies, whose mean counts
CAMERA, CONSUMER = "field1", "field2"
APART_ENDS, TOGETHER, CLOUD_FIRST = "ends apart", "ends together", "ends apart, cloud first"
READINGS: Mapping[str, str] = {APART_ENDS: CONSUMER, TOGETHER: CAMERA, CLOUD_FIRST: CONSUMER}
"""Machine of the consumer, and order of machines; the paper does not specify them."""


def _cases(quick: bool) -> list[Case]:
    bandwidths = QUICK_BANDWIDTHS if quick else BANDWIDTHS
    return [{"reading": reading, "field_mbps": field, "seed": 0} for reading in READINGS for field in bandwidths]


def run_faces(one: Case) -> Sequence[Row]:
    """Run every policy and return a row of rates, with the number of tasks that SPARCLE places in the field."""
    reading = str(one["reading"])
    cluster = field_and_cloud(field_mbps=float(one["field_mbps"]))
    if reading == CLOUD_FIRST:
        cluster = msgspec.structs.replace(cluster, machines=(cluster.machines[-1], *cluster.machines[:-1]))
    application = face_detection(CAMERA, READINGS[reading])
    planner = Planner(application, cluster, Objective.THROUGHPUT, seed=int(one["seed"]) + APART)
    decisions = {name: planner.decide(POLICIES[name]) for name in ASKED}
    rates = {name: rate(decision) for name, decision in decisions.items()}
    for name in (GR, RANDOM):
        rates[name] = _mean_rate(planner, POLICIES[name])
    return [{**rates, **{f"{name}_in_field": _in_field(planner, decisions[name]) for name in OURS}}]


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


def _draw(rows: pd.DataFrame, picture: "Picture") -> None:
    picture.set_size_inches(10, 5)
    left, right = picture.subplots(1, 2)
    own = select(rows, reading=APART_ENDS).sort_values("field_mbps")
    for policy in ASKED:
        curve(left, own["field_mbps"].to_list(), own[policy].to_list(), policy)
        curve(right, own["field_mbps"].to_list(), (own[policy] / own[OPTIMUM]).to_list(), policy)
    across = "field bandwidth (Mbps)"
    finish(left, {"x": across, "y": "rate (images/s)", "title": "rate"}, legend=False)
    finish(right, {"x": across, "y": "rate / optimum", "title": "relative to the optimum"}, legend=False)
    for axis in (left, right):
        axis.set_ylim(bottom=0)
    legend_below(picture, left, columns=6)


def _at(rows: pd.DataFrame, field: float) -> pd.DataFrame:
    return select(rows, field_mbps=field)


def _over(rows: pd.DataFrame, field: float, policy: str = CANONICAL) -> float:
    """Return the rate of a policy relative to the cloud's at a bandwidth."""
    own = _at(rows, field)
    return float(column(own, policy)[0] / column(own, CLOUD)[0])


def _range(values: Floats) -> str:
    return f"{values.min():.3f} to {values.max():.3f}"


def _claims(rows: pd.DataFrame) -> list[Claim]:
    own, together, first = (select(rows, reading=name) for name in READINGS)
    share = column(own, CANONICAL) / column(own, OPTIMUM)
    defaults = column(own, SPARCLE) / column(own, OPTIMUM)
    refined = column(own, REFINED) / column(own, OPTIMUM)
    worst = float(own["field_mbps"].to_numpy()[int(np.argmin(share))])
    numbered = column(first, CANONICAL) / column(first, OPTIMUM)
    little, much = _over(own, LITTLE), _over(own, MUCH) - 1
    middle = _over(own, MIDDLE)
    left = {name: int(_at(own, MIDDLE)[f"{name}_in_field"].iloc[0]) for name in (CANONICAL, SPARCLE)}
    return [
        Claim(
            "6",
            "SPARCLE equals the optimum at every bandwidth",
            "equal",
            f"{_range(share)} of it, least at {worst:g} Mbps",
            "within 1 % at every bandwidth",
            bool(share.min() >= 0.99),
            f"our default {_range(defaults)}, refined {_range(refined)}; with the cloud numbered before the field, "
            f"{_range(numbered)}",
        ),
        Claim(
            "6",
            "≈ 9 times the cloud at 0.5 Mbps",
            "9 ×",
            f"{little:.1f} ×",
            "8 to 10 times",
            8.0 <= little <= 10.0,
            f"our default {_over(own, LITTLE, SPARCLE):.1f} ×, optimum {_over(own, LITTLE, OPTIMUM):.1f} ×: resize "
            f"where the camera is, all else in the cloud; camera and consumer on one machine "
            f"{_over(together, LITTLE):.1f} ×, cloud numbered first {_over(first, LITTLE):.1f} ×",
        ),
        Claim(
            "6",
            "only the cloud at 10 Mbps, which is optimal",
            "only",
            f"{left[CANONICAL]} of 4 tasks in the field, {middle:.2f} of the cloud's rate",
            "none",
            left[CANONICAL] == 0,
            f"our default: {left[SPARCLE]} of 4, {_over(own, MIDDLE, SPARCLE):.2f}; optimum "
            f"{_over(own, MIDDLE, OPTIMUM):.2f}",
        ),
        Claim(
            "6",
            "better than the cloud at 22 Mbps",
            "+23 %",
            signed(much),
            "half to twice as much",
            half_to_twice(much, 0.23),
            f"the optimum has {signed(_over(own, MUCH, OPTIMUM) - 1)}: more is not possible by (1a) on one path here",
        ),
        Claim(
            "6",
            "check: by (1a) on one path it is +17 % at 22 Mbps",
            "+17 %",
            signed(much, 1),
            "±2 points",
            abs(much - 0.17) <= 0.02,
        ),
        *_best_over(own),
    ]


def _best_over(rows: pd.DataFrame) -> list[Claim]:
    """Check SPARCLE's maximum gain over the others."""
    made = []
    most = float((column(rows, OPTIMUM) / column(rows, HEFT)).max()) - 1
    own = column(rows, T_STORM)
    reasons = {
        HEFT: f"no placement is above our HEFT by more than {signed(most)} on this testbed; the paper does not "
        "describe its HEFT",
        T_STORM: "T-Storm minimises traffic between machines and ignores their speeds and links: its rate is "
        f"about {own.mean():.2f} images/s at every bandwidth, while SPARCLE's rises",
        VNE: "",
    }
    for other, said, paper in ((HEFT, 3.0, "+300 %"), (T_STORM, 0.63, "+63 %"), (VNE, 13.5, "+1350 %")):
        gains = column(rows, CANONICAL) / column(rows, other) - 1
        at = rows["field_mbps"].to_numpy()[int(np.argmax(gains))]
        made.append(
            Claim(
                "6",
                f"maximum gain over {other.upper() if other != T_STORM else 'T-Storm'}",
                paper,
                f"{signed(gains.max())} at {at:g} Mbps; {signed(gains.min())} at least",
                "half to twice as much",
                half_to_twice(float(gains.max()), said),
                reasons[other],
            )
        )
    heft = column(rows, CANONICAL) / column(rows, HEFT) - 1
    made.append(
        Claim(
            "6",
            "check: above HEFT by 20 to 33 %",
            "+20 to +33 %",
            f"{signed(heft.min())} to {signed(heft.max())}",
            "the greatest within +15 to +40 %",
            0.15 <= float(heft.max()) <= 0.40,
            "our HEFT ends a batch of one image early",
        )
    )
    return made


FIGURES: Sequence[Figure] = (
    Figure("6", "Figure 6: face detection against the bandwidth of the field", _cases, run_faces, _draw, _claims),
)
