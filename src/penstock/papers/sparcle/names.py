"""The policies that figures compare: their names in rows, their specifications, and their titles and colours."""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.experiments.pictures import COLOURS

CANONICAL, NEAR, SPARCLE, REFINED, OPTIMUM = "canonical", "near", "sparcle", "refined", "optimum"
GS, GR, RANDOM, T_STORM, VNE, HEFT, CLOUD = "gs", "gr", "random", "t-storm", "vne", "heft", "cloud"
GS_NEAR, GR_NEAR, GS_CPU = "gs-near", "gr-near", "gs-cpu"


class Compared(NamedTuple):
    """A policy in the figures."""

    policy: str
    title: str
    colour: str


_COMPARED = {
    # The paper's Algorithm 2: lowest task, lowest machine.
    CANONICAL: Compared("sparcle:ties=lowest,together=false", "SPARCLE", COLOURS[0]),
    NEAR: Compared("sparcle:ties=near,together=false", "SPARCLE, near ties", COLOURS[1]),
    # Ties near, and transports that share links rated together.
    SPARCLE: Compared("sparcle", "our default", COLOURS[1]),
    # No time limit, so that what it finds does not depend on how busy the host is.
    REFINED: Compared("sparcle-refined:seconds=none", "refined", COLOURS[2]),
    # Ties as SPARCLE's, so that only the order of tasks differs.
    GS: Compared("greedy-sorted:ties=lowest", "GS", COLOURS[3]),
    GR: Compared("greedy-random:ties=lowest", "GR", COLOURS[4]),
    GS_CPU: Compared("greedy-sorted:measure=cpu,ties=lowest", "GS by cpu", COLOURS[3]),  # where other resources count
    GS_NEAR: Compared("greedy-sorted", "GS, near ties", COLOURS[3]),
    GR_NEAR: Compared("greedy-random", "GR, near ties", COLOURS[4]),
    T_STORM: Compared("t-storm", "T-Storm", COLOURS[5]),
    VNE: Compared("vne", "VNE", COLOURS[6]),
    HEFT: Compared("heft", "HEFT", COLOURS[8]),
    RANDOM: Compared("random", "Random", COLOURS[7]),
    CLOUD: Compared("cloud-only", "cloud only", "#bbbbbb"),
    OPTIMUM: Compared("optimal", "optimum", "#000000"),
}
POLICIES: Mapping[str, str] = {name: one.policy for name, one in _COMPARED.items()}
TITLES: Mapping[str, str] = {name: one.title for name, one in _COMPARED.items()}
COLOUR: Mapping[str, str] = {name: one.colour for name, one in _COMPARED.items()}

OURS = (CANONICAL, SPARCLE, REFINED)
SHOWN = (*OURS, GS, GR, T_STORM, VNE, HEFT, RANDOM)
EVERY = (*SHOWN, CLOUD, OPTIMUM)
PUBLISHED = (CANONICAL, GS, GR, T_STORM, VNE, RANDOM)  # those that the paper compares
RIVALS = (GS, GR, GS_NEAR, GR_NEAR, T_STORM, VNE, HEFT, RANDOM)
