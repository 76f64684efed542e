"""Hone's figures: the simulated link is the paper's model, cases run, and claims are judged by what comes out."""

from collections import deque
from collections.abc import Callable, Mapping
from math import log2, nan
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from penstock.experiments.figure import Case, Figure
from penstock.papers.hone import FIGURES
from penstock.papers.hone.competition import DEPTHS, NUMBERS, Player, bound
from penstock.papers.hone.links import (
    FIFO,
    LBF,
    LBF_HELD,
    QUEUES,
    RANDOM,
    RRB,
    RULE,
    RULES,
    SAMPLED,
    WC_RR,
    measures,
    send_over,
)
from penstock.papers.hone.skews import KINDS as SKEWED
from penstock.papers.hone.tables import Spread, apart, growing, reductions, spreads
from penstock.workloads.adversaries import staircase
from penstock.workloads.arrivals import Counts
from penstock.workloads.hone import KINDS, draw_arrivals

FIGURE = {figure.number: figure for figure in FIGURES}
Measures = dict[str, Any]


def plain_link(counts: Counts, rule: str) -> tuple[list[int], float]:
    """Simulate Hone's link (1) in plain Python; return the longest queue at the end of every slot, and mean delay."""
    queues: list[deque[int]] = [deque() for _ in range(counts.shape[1])]
    longest, delays, turn = [], [], 0
    for slot, row in enumerate(counts.tolist()):
        for queue, came in zip(queues, row, strict=True):
            queue.extend([slot] * came)
        order = list(range(turn, len(queues))) + list(range(turn))
        if rule == LBF:
            order = sorted(range(len(queues)), key=lambda number: -len(queues[number]))
        elif rule == FIFO:
            order = sorted(range(len(queues)), key=lambda number: queues[number][0] if queues[number] else slot + 1)
        chosen = order[0] if rule == RRB else next((number for number in order if queues[number]), order[0])
        if queues[chosen]:
            delays.append(slot - queues[chosen].popleft())
        elif rule == WC_RR:
            chosen = turn - 1  # an idle slot takes nobody's turn
        turn = (chosen + 1) % len(queues)
        longest.append(max(map(len, queues)))
    left = [len(counts) - 1 - since for queue in queues for since in queue]
    return longest, float(np.mean(delays + left))


@pytest.mark.slow
@pytest.mark.parametrize("rule", [LBF, RRB, WC_RR, FIFO])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("load", [0.5, 0.95, 2.0])
def test_the_link_is_hones_model_slot_by_slot(rule: str, kind: str, load: float) -> None:
    counts = draw_arrivals(kind, 400, 6, load, np.random.default_rng(7))
    outcome = send_over(counts, RULE[rule].spec)
    longest, delay = plain_link(counts, rule)
    assert outcome.series.longest.tolist() == longest
    assert outcome.longest == max(longest)
    assert outcome.response - 1.0 == pytest.approx(delay)


def test_jains_index_is_taken_of_what_is_left_at_the_end_of_the_slot_before() -> None:
    counts = np.zeros((10_000, 2), dtype=np.int64)
    counts[999] = (5, 3)  # one is sent: 4 and 3 are left
    found = measures(send_over(counts, RULE[LBF].spec))
    assert found["jain_1000"] == pytest.approx((4 + 3) ** 2 / (2 * (4**2 + 3**2)))
    assert np.isnan(float(found["jain_2000"]))


@pytest.mark.parametrize("rule", [rule.name for rule in RULES if rule.name != RANDOM])
@pytest.mark.parametrize("queues", [2, 5])
def test_the_rule_that_an_adversary_plays_against_is_the_simulators(rule: str, queues: int) -> None:
    player = Player(RULE[rule].spec, queues)
    arrivals = staircase(queues, player, depth=3)
    assert send_over(arrivals, RULE[rule].spec).longest == player.largest > 3


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_a_case_of_every_kind_runs_and_gives_rows_that_travel(figure: Figure) -> None:
    kinds: dict[object, Case] = {}
    for case in figure.cases(True):
        kinds.setdefault(case.get("kind", case.get("adversary")), case)
    for case in kinds.values():
        rows = figure.run(case)
        assert rows
        table = pd.DataFrame([{**case, **msgspec.json.decode(msgspec.json.encode(row))} for row in rows])
        assert set(good(figure.number).columns) == set(table.columns)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_a_quick_run_is_a_part_of_a_whole_one(figure: Figure) -> None:
    quick, whole = (
        [msgspec.json.encode(case, order="sorted") for case in figure.cases(part)] for part in (True, False)
    )
    assert len(set(whole)) == len(whole)
    assert set(quick) < set(whole)
    assert {case["seed"] for case in figure.cases(False)} >= set(range(10))


def test_figures_share_cases() -> None:
    """The framework runs equal cases of one function once."""
    first = {msgspec.json.encode(case) for number in ("6a", "6b") for case in FIGURE[number].cases(False)}
    for number in ("7", "8"):
        assert FIGURE[number].run is FIGURE["6a"].run
        assert {msgspec.json.encode(case) for case in FIGURE[number].cases(False)} <= first


@pytest.mark.slow
def test_every_rule_of_a_random_case_is_played_on_the_same_cases() -> None:
    rows = pd.DataFrame(FIGURE["competitive"].run({"adversary": "random", "queues": 0, "depth": 0, "seed": 3}))
    by_rule = rows.groupby("rule")["cases"].sum()
    assert set(by_rule.index) == {rule.name for rule in RULES}
    assert set(by_rule) == {250}
    assert rows[rows["rule"] == LBF]["broken"].sum() == 0
    assert rows[rows["rule"] == RRB]["beyond_number"].sum() > 0
    assert bound(64) == 9


def frame(number: str, measure: Callable[[Mapping[str, Any]], Measures]) -> pd.DataFrame:
    return pd.DataFrame([{**case, **measure(case)} for case in FIGURE[number].cases(True)])


def link(largest: float = 1.0, delay: float = 1.0, **more: float) -> Measures:
    jain = {f"jain_{slot}": 0.5 for slot in SAMPLED}
    return {"largest": largest, "largest_p99": largest, "delay": delay, "delay_p99": delay, **jain, **more}


def as_the_check_found_6a(case: Mapping[str, Any]) -> Measures:
    idle = {500: 10.0, 900: 30.0, 1000: 60.0, 2000: 1000.0, 5000: 4000.0}[case["rate"]]
    lbf = idle * (1 - {500: 0.69, 900: 0.85, 1000: 0.82, 2000: 0.06, 5000: 0.02}[case["rate"]])
    turn = lbf / (1 - {500: 0.30, 900: 0.55, 1000: 0.58, 2000: 0.06, 5000: 0.02}[case["rate"]])
    return link({RRB: idle, LBF: lbf, WC_RR: turn, FIFO: 1.3 * lbf}.get(case["rule"], idle))


def as_the_paper_has_6b(case: Mapping[str, Any]) -> Measures:
    idle = {10: 60.0, 20: 500.0, 50: 850.0, 100: 950.0}[case["queues"]]
    return link(idle - 50.0 if case["rule"] == LBF else idle)


def as_the_paper_has_7(case: Mapping[str, Any]) -> Measures:
    by_number = {20: 1.9, 50: 1.2, 100: 1.001}
    by_rate = {1000: 1.8, 2000: 1.1, 5000: 1.01}
    lbf = case["rule"] == LBF
    if (case["queues"], case["rate"]) != (QUEUES, 500):
        factor = by_rate[case["rate"]] if case["queues"] == QUEUES else by_number[case["queues"]]
        return link() | {f"jain_{slot}": 0.5 * factor if lbf else 0.5 for slot in SAMPLED}
    empty = {f"jain_{slot}": nan if lbf else 0.1 for slot in SAMPLED}
    return link() | empty | {"jain_1000": 0.1 if lbf else 0.4}


def as_the_check_found_8(case: Mapping[str, Any]) -> Measures:
    delay = {500: 0.5, 900: 4.0, 1000: 20.0, 2000: 2500.0, 5000: 4000.0}[case["rate"]]
    less = {500: 0.9, 900: 0.85, 1000: 0.7, 2000: 0.002, 5000: 0.001}[case["rate"]]
    if case["queues"] != QUEUES:
        delay, less = 50.0 * case["queues"], 1.0 / case["queues"]
    return link(delay=delay / (1 - less) if case["rule"] in (RRB, LBF_HELD) else delay)


def as_the_check_found_skew(case: Mapping[str, Any]) -> Measures:
    lbf, turn, fifo = SKEWED[case["kind"]][1] if case["kind"] in SKEWED else (4.0, 9.0, 6.0)
    largest = {WC_RR: turn, FIFO: fifo, RRB: 2 * turn}.get(case["rule"], lbf)
    return link(largest, 4.0, delay_p99=20.0 if case["rule"] == LBF else 10.0)


def as_the_check_found_signal(case: Mapping[str, Any]) -> Measures:
    tau = case["tau"]
    if case["conserving"]:
        return link(4.0 + tau / 100, 4.4)
    return link(4.0 + tau, {1: 4.4, 2: 9.0, 10: 45.0, 50: 220.0}[tau])


def competition(worst: Callable[[str, str, int, int], float], broken: int) -> pd.DataFrame:
    rows = []
    for adversary, depths in (("random", (0,)), ("staircase", DEPTHS), ("overtaken", (4,))):
        for rule in RULES:
            for queues in NUMBERS:
                rows += [
                    {
                        "adversary": adversary, "queues": queues, "depth": depth, "seed": 0, "rule": rule.name,
                        "cases": 10, "worst": worst(adversary, rule.name, queues, depth), "broken": broken,
                        "beyond_number": broken, "from_nothing": broken,
                    }
                    for depth in depths
                ]  # fmt: skip
    return pd.DataFrame(rows)


def ratio(adversary: str, rule: str, queues: int, depth: int) -> float:
    if adversary == "overtaken":
        return queues - 1.0
    if adversary == "random" or queues <= 3:
        return 2.0 if queues <= 3 and depth != max(DEPTHS) else 1.5 if depth == 0 else harmonic(queues)
    return 1.0 + int(log2(queues)) if depth == 1 else harmonic(queues)


def harmonic(queues: int) -> float:
    return sum(1 / k for k in range(1, queues + 1))


def good(number: str) -> pd.DataFrame:
    """Make up rows as the paper and the check have them."""
    if number == "competitive":
        return competition(ratio, 0)
    worlds = {
        "6a": as_the_check_found_6a,
        "6b": as_the_paper_has_6b,
        "7": as_the_paper_has_7,
        "8": as_the_check_found_8,
        "skew": as_the_check_found_skew,
        "signal": as_the_check_found_signal,
    }
    return frame(number, worlds[number])


def against_8(case: Mapping[str, Any]) -> Measures:
    """Delays fall with rate and number; RRB's are less, the less the lower the rate; rules that never idle differ."""
    delay = 1e6 / case["rate"] / case["queues"]
    return link(delay=delay * {RRB: 0.5 + case["rate"] / 10_000, FIFO: 2.0}.get(case["rule"], 1.0))


def bad(number: str) -> pd.DataFrame:
    """Make up rows of which nothing is true that was claimed."""
    worlds: dict[str, Callable[[Mapping[str, Any]], Measures]] = {
        "6a": lambda case: link(1e6 / case["rate"] * (2.0 if case["rule"] in (LBF, WC_RR) else 1.0)),
        "6b": lambda case: link(100.0),
        "7": lambda case: link(),
        "8": against_8,
        "skew": lambda case: link(100.0 if case["rule"] == LBF else 50.0, 3.0 if case["rule"] == LBF else 4.0),
        "signal": lambda case: link(100.0 / case["tau"], (1.0 if case["conserving"] else 100.0) / case["tau"]),
    }
    if number == "competitive":
        return competition(lambda adversary, *_: 1.0 if adversary == "overtaken" else 100.0, 1)
    return frame(number, worlds[number])


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_all_claims_hold_of_rows_as_they_were_claimed(figure: Figure) -> None:
    for claim in figure.claims(good(figure.number)):
        assert claim.holds is True, claim
        assert all((claim.claim, claim.paper, claim.ours, claim.tolerance))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_no_claim_holds_of_rows_that_say_the_contrary(figure: Figure) -> None:
    claims = figure.claims(bad(figure.number))
    assert len(claims) == len(figure.claims(good(figure.number)))
    for claim in claims:
        assert claim.holds is False, claim


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_every_picture_shows_its_rules_and_is_labelled(figure: Figure) -> None:
    picture = Picture(figsize=(9, 5))
    figure.draw(good(figure.number), picture)
    assert picture.axes
    assert all(axis.has_data() for axis in picture.axes)
    assert any(axis.get_legend() is not None for axis in picture.axes)
    assert picture.axes[0].get_ylabel()


def test_a_mean_is_compared_within_a_tolerance_or_two_standard_errors() -> None:
    found = Spread(10.0, deviation=2.0, runs=10)
    assert found.allows(10.9, 1.0, 1)
    assert found.allows(14.0, 1.0, 1)  # two deviations of a single run and of ten
    assert not found.allows(14.3, 1.0, 1)
    assert found.allows(11.7, 1.0, 10)
    assert not found.allows(11.9, 1.0, 10)


def test_rules_are_compared_draw_by_draw() -> None:
    rows = pd.DataFrame(
        [
            {"rate": 1, "seed": seed, "rule": rule, "largest": largest}
            for seed, pair in enumerate([(1.0, 2.0), (3.0, 12.0)])
            for rule, largest in zip((LBF, RRB), pair, strict=True)
        ]
    )
    found = reductions(rows, "largest", LBF, RRB, "rate")[1]
    assert found.mean == pytest.approx((0.5 + 0.75) / 2)
    assert found.runs == 2
    assert apart(rows, "largest", ["rate"], "rule") == pytest.approx(0.75)
    assert spreads(rows, "largest", "rule")[RRB].text == "7.0 ± 7.1"


def test_growth_may_be_slack() -> None:
    assert growing([1.0, 1.0, 2.0])
    assert not growing([1.0, 0.99])
    assert growing([1.0, 0.99], share=0.02)
    assert growing([0.1, 0.099], slack=0.001)
