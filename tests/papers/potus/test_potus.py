"""POTUS's figures: every one runs, its picture is drawn, and its claims can hold and fail."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from penstock.estimate.communication import CommunicationBound, communication_bound
from penstock.experiments.figure import Claim, Figure
from penstock.experiments.statistics import signed_spread
from penstock.papers.potus import FIGURES, backlogs, beyond, costs, lookahead, phantoms, predictions, settings, theorems
from penstock.papers.potus.runs import case, run_system, spec
from penstock.papers.potus.summaries import crossing, fit_line, power, spread, steady, upper
from penstock.policies.registry import routing_policy
from penstock.sim.slotted import Arrivals, simulate

BY_NUMBER = {figure.number: figure for figure in FIGURES}
EVERY = pytest.mark.parametrize("figure", FIGURES, ids=[figure.number for figure in FIGURES])


def test_every_figure_of_the_paper_is_there() -> None:
    assert {"4", "5a", "5b", "5c", "5d", "6a", "6b", "6c"} <= set(BY_NUMBER)


@EVERY
def test_a_quick_case_runs_and_gives_numbers(figure: Figure) -> None:
    one = figure.cases(True)[0]
    (row,) = figure.run({**one, "slots": 200, "warm_up": 20})
    assert row["tuples_a_slot"] > 0  # type: ignore[operator]
    assert row["response"] >= 0  # type: ignore[operator]
    assert row["cost"] >= 0  # type: ignore[operator]


@EVERY
def test_a_full_run_has_four_seeds_or_twenty_systems_and_ten_thousand_slots(figure: Figure) -> None:
    cases = figure.cases(False)
    if figure.number == "counterexample":  # nothing in it is drawn
        return
    assert len({one["seed"] for one in cases}) >= (20 if figure.number == "beyond" else 4)
    assert {one["slots"] for one in cases} == {10_000}
    assert min(int(one["warm_up"]) for one in cases) >= 1_000


@pytest.mark.slow
@EVERY
def test_pictures_are_drawn_and_claims_judged_of_any_numbers(figure: Figure) -> None:
    rows = made_up(figure, np.random.default_rng(0))
    figure.draw(rows, Picture())
    claims = figure.claims(rows)
    assert claims
    assert all(isinstance(claim.holds, bool | np.bool_) and claim.ours for claim in claims)


def made_up(figure: Figure, rng: np.random.Generator) -> pd.DataFrame:
    """Return a table as a figure's quick run would give, of random numbers."""
    rows = []
    for one in figure.cases(True):
        cost = float(rng.uniform(5, 6))
        rows.append({
            **one, "response": float(rng.uniform(5, 6)), "response_p99": 9.0, "cost": cost, "optimum": 5.0,
            "backlog": float(rng.uniform(5, 6)), "growth": 0.0, "unfinished": 0.0, "tuples_a_slot": 20.0,
            "squared_error": 1.0, "served": 100.0, "unequal": 0.2,
        })  # fmt: skip
    table = pd.DataFrame(rows)
    if figure.number == "beyond":
        table = table.assign(fabric="jellyfish", arrivals="poisson", hops=1, tasks=9, utilisation=0.7)
    return table


def judged(module_figure: Figure, change: Callable[[pd.DataFrame], pd.DataFrame]) -> list[Claim]:
    return list(module_figure.claims(change(made_up(module_figure, np.random.default_rng(1)))))


def holds(claims: list[Claim], words: str) -> bool:
    (found,) = [claim for claim in claims if words in claim.claim]
    return bool(found.holds)


def test_look_ahead_claims_hold_of_curves_as_the_paper_has_them_and_fail_of_flat_ones() -> None:
    (figure,) = lookahead.FIGURES

    def papers(rows: pd.DataFrame) -> pd.DataFrame:
        fallen = 31.4 * np.exp(-0.51 * rows["window"]) + 0.1
        shuffled = rows["policy"] == "shuffle"
        return rows.assign(response=fallen.where(~shuffled, 33.0))

    claims = judged(figure, papers)
    assert holds(claims, "falls as W grows")
    assert holds(claims, "nearly nothing is left")
    assert holds(claims, "stays near")
    assert holds(claims, "Shuffle is about 5 %")
    assert not holds(claims, "one slot is saved a slot")
    flat = judged(figure, lambda rows: rows.assign(response=10.0 + rows["window"] / 10))
    assert not holds(flat, "falls as W grows")
    assert not holds(flat, "nearly nothing is left")
    assert holds(flat, "one slot is saved a slot")


def test_backlog_claims_tell_lines_from_curves_and_where_they_cross() -> None:
    figure = backlogs.FIGURES[1]

    def straight(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(backlog=(100 + 50 * rows["v"]).where(rows["policy"] != "shuffle", 900.0))

    claims = judged(figure, straight)
    assert holds(claims, "grows linearly")
    assert holds(claims, "passes Shuffle's near V = 16")
    bent = judged(figure, lambda rows: rows.assign(backlog=100 + rows["v"] ** 3))
    assert not holds(bent, "grows linearly")
    assert not holds(bent, "passes Shuffle's near V = 16")


def test_cost_claims_hold_of_a_fall_to_the_optimum_and_fail_of_none() -> None:
    bare, ahead = costs.FIGURES

    def falling(rows: pd.DataFrame) -> pd.DataFrame:
        ratio = 1.005 + 0.06 / rows["v"].clip(lower=1.0)
        return rows.assign(cost=5.0 * ratio.where(rows["policy"] != "shuffle", 1.08), optimum=5.0)

    for words in ("cost falls from V = 1", "flat beyond", "0.5 % above", "less than Shuffle", "least or none"):
        assert holds(judged(bare, falling), words)
        if words != "flat beyond":
            assert not holds(judged(bare, lambda rows: rows.assign(cost=6.0)), words)
    short = judged(bare, lambda rows: falling(rows).assign(backlog=np.where(rows["policy"] == "shuffle", 9.0, 5.0)))
    assert holds(short, "both less cost and less backlog")
    assert not holds(judged(bare, lambda rows: rows.assign(cost=6.0)), "both less cost and less backlog")
    assert holds(judged(ahead, falling), "makes no difference")
    assert not holds(judged(bare, lambda rows: falling(rows).assign(growth=0.1)), "0.5 % above")
    assert not holds(judged(bare, lambda rows: falling(rows).assign(cost=4.5)), "least or none")
    moved = judged(
        ahead, lambda rows: falling(rows).assign(cost=lambda some: some["cost"] * (1 + some["window"] / 500))
    )
    assert not holds(moved, "makes no difference")


def test_prediction_claims_hold_of_a_dip_and_a_gain_that_ends() -> None:
    figure = predictions.FIGURES[1]

    def papers(rows: pd.DataFrame) -> pd.DataFrame:
        bare = (30.0 - 1.2 * rows["v"]).where(rows["v"] < 5, 24.0 + (rows["v"] - 5))
        gain = (rows["window"] > 0) & (rows["v"] < 20)
        return rows.assign(response=bare * (1 - 0.15 * gain))

    claims = judged(figure, papers)
    assert all(claim.holds for claim in claims if "linearly" not in claim.claim), claims
    rising = judged(figure, lambda rows: rows.assign(response=5.0 + rows["v"] + rows["window"]))
    assert not holds(rising, "falls by about 20 %")
    assert not holds(rising, "up to 16.5 %")


def test_a_gain_that_differs_by_more_than_it_is_does_not_pass() -> None:
    def lucky(rows: pd.DataFrame) -> pd.DataFrame:
        gain = np.where(rows["seed"] == 0, 0.4, -0.1) * ((rows["window"] > 0) & (rows["v"] == 1.0))
        return rows.assign(response=10.0 * (1 - gain))

    claims = judged(predictions.FIGURES[1], lucky)
    assert not holds(claims, "up to 16.5 %")
    (found,) = [claim for claim in claims if "up to 16.5 %" in claim.claim]
    assert "−15.0 ±35.4 %" in found.ours
    assert "V = 1)" in found.ours


def test_shuffle_and_potus_are_called_level_near_saturation_by_v_3_alone() -> None:
    (figure,) = settings.FIGURES

    def level(v: float) -> bool:
        return holds(
            judged(
                figure,
                lambda rows: rows.assign(response=10.0 + 10.0 * ((rows["v"] == v) & (rows["policy"] == "potus"))),
            ),
            "near saturation",
        )

    assert level(0.0)
    assert not level(3.0)


def test_look_ahead_destabilises_where_queues_grow_and_not_where_it_is_slow() -> None:
    (figure,) = settings.FIGURES
    slow = judged(figure, lambda rows: rows.assign(response=5.0 + rows["window"]))
    assert not holds(slow, "can destabilise")

    def growing(limit: int) -> list[Claim]:
        return judged(
            figure, lambda rows: rows.assign(growth=0.1 * ((rows["limit"] == limit) & (rows["window"] == 10)))
        )

    assert holds(growing(5), "can destabilise")
    assert not holds(growing(0), "can destabilise")


def test_phantom_claims_hold_of_a_dip_and_fail_of_overload() -> None:
    (figure,) = phantoms.FIGURES

    def papers(rows: pd.DataFrame) -> pd.DataFrame:
        dip = 10.0 + 0.2 * rows["phantoms"] * (rows["window"] - 6) * (rows["window"] > 0) / 4
        never = 10.0 + rows["window"]
        perfect = 10.0 * np.exp(-rows["window"])
        found = dip.where(rows["phantoms"] < 30, never).where(rows["forecast"] == "false-positive", perfect)
        return rows.assign(response=found.where(rows["forecast"] != "all-true-negative", 10.0))

    claims = judged(figure, papers)
    for words in ("nearly nothing", "does not depend", "best near W = 2", "(30) never helps"):
        assert holds(claims, words)
    overloaded = judged(figure, lambda rows: rows.assign(response=10.0 + rows["window"] * rows["phantoms"]))
    assert not holds(overloaded, "best near W = 2")
    assert not holds(overloaded, "nearly nothing")
    assert holds(judged(figure, lambda rows: rows.assign(response=10.0 + rows["evenly"])), "as a share of real tuples")
    assert not holds(judged(figure, lambda rows: rows.assign(response=10.0 - rows["evenly"])), "as a share of real")


def test_slopes_are_told_from_flat_gaps() -> None:
    figure = theorems.FIGURES[0]

    def like(power_of: float) -> list[Claim]:
        return judged(
            figure,
            lambda rows: rows.assign(
                optimum=5.0, cost=5.0 + (1 + rows["seed"] / 10) * rows["v"] ** power_of, backlog=10 * rows["v"]
            ),
        )

    assert all(claim.holds for claim in like(-1.5))
    assert [claim.holds for claim in like(-0.5)] == [False, True, False, True]


def test_beyond_names_the_systems_where_it_loses() -> None:
    (figure,) = beyond.FIGURES

    def better(rows: pd.DataFrame) -> pd.DataFrame:
        plus = rows["policy"] == "potus-plus"
        return rows.assign(response=np.where(plus, 1.0, 2.0), cost=np.where(plus, 5.01, 6.0), optimum=5.0)

    assert all(claim.holds for claim in judged(figure, better))

    def worse(rows: pd.DataFrame) -> pd.DataFrame:
        lost = (rows["seed"] == 103) & (rows["policy"] == "potus-plus") & (rows["family"] == "equal")
        return better(rows).assign(response=lambda some: some["response"].where(~lost, 3.0))

    first, *others = judged(figure, worse)
    assert not first.holds
    assert "above 1 in 1 of 7 systems, by +50.0 %" in first.ours
    assert "system 103: 1.500 (jellyfish, poisson, 1 hops, load 0.70)" in first.ours
    assert all(claim.holds for claim in others)


@pytest.mark.slow
def test_beyond_does_not_pass_what_is_not_a_number() -> None:
    (figure,) = beyond.FIGURES
    nowhere = judged(figure, lambda rows: rows.assign(optimum=np.where(rows["seed"] == 103, np.nan, 5.0), cost=5.0))
    assert [claim.holds for claim in nowhere if "within 2 %" in claim.claim] == [False, False]
    everywhere = judged(figure, lambda rows: rows.assign(optimum=5.0, cost=5.0))
    assert [claim.holds for claim in everywhere if "within 2 %" in claim.claim] == [True, True]


def test_beyond_takes_the_best_rival_by_its_mean_over_repeats() -> None:
    (figure,) = beyond.FIGURES
    once = made_up(figure, np.random.default_rng(0)).assign(response=4.0)
    twice = pd.concat([once, once.assign(repeat=1, response=np.where(once["policy"] == "shuffle", 1.0, 4.0))])
    found = beyond.compared(twice.assign(response=twice["response"].where(twice["policy"] != "potus-plus", 2.0)))
    assert found["to_other"].to_numpy() == pytest.approx((2.0 / 4.0 + 2.0 / 1.0) / 2)
    assert found["to_potus"].to_numpy() == pytest.approx(0.5)


def test_mixed_tasks_are_one_to_two_times_as_fast() -> None:
    system = theorems.example_system()
    faster = beyond.mixed(system, 100)
    works = np.isfinite(system.service) & ~system.source
    factor = faster.service[works] / system.service[works]
    assert (factor >= 1.0).all()
    assert (factor <= 2.0).all()
    assert len(set(factor.tolist())) == works.sum()
    assert (faster.limit == 2 * system.limit).all()


@pytest.mark.parametrize("v", [1, 2, 5, 10, 50, 100])
def test_beyond_one_hop_potus_pays_five_times_the_optimum_whatever_v(v: float) -> None:
    (row,) = theorems.run_example({"policy": "potus", "v": v, "options": "", "slots": 4000, "warm_up": 1000, "seed": 0})
    assert row["optimum"] == pytest.approx(3.0)
    assert row["cost"] == pytest.approx(15.0)
    (plus,) = theorems.run_example(
        {"policy": "potus-plus", "v": v, "options": "", "slots": 4000, "warm_up": 1000, "seed": 0}
    )
    assert plus["cost"] == pytest.approx(3.0)


def test_shuffle_pays_the_mean_of_both_ways_in_the_example() -> None:
    system = theorems.example_system()
    assert system.tasks == 4
    counts = np.zeros((4, 20_000), dtype=np.int64)
    counts[0] = theorems.EXAMPLE_RATE
    found = simulate(system, Arrivals(counts), routing_policy("shuffle"), warm_up=100, seed=1)
    assert found.cost == pytest.approx(9.0, abs=0.1)
    bound = communication_bound(system, counts.mean(axis=1))
    assert isinstance(bound, CommunicationBound)
    assert bound.cost == pytest.approx(3.0)


def test_whatever_v_is_the_same_tuples_are_counted() -> None:
    came = {v: run_system(case(True, v=v, slots=200))[0]["tuples_a_slot"] for v in (0.0, 3.0, 100.0)}
    assert len(set(came.values())) == 1


def test_equal_cases_give_equal_rows() -> None:
    one = case(True, v=2.0, arrivals="poisson", slots=300, warm_up=50, seed=3)
    assert run_system(one) == run_system(one)
    assert run_system(one) != run_system({**one, "seed": 4})


def test_what_is_predicted_is_used() -> None:
    one = case(True, v=1.0, arrivals="poisson", window=4, same=True, slots=300, warm_up=50)
    rows = {name: run_system({**one, "forecast": name})[0] for name in ("perfect", "all-true-negative", "ewma")}
    assert rows["perfect"]["response"] < rows["all-true-negative"]["response"]  # type: ignore[operator]
    assert rows["ewma"]["squared_error"] > rows["perfect"]["squared_error"] == 0  # type: ignore[operator]
    ghosts = {**one, "forecast": "false-positive", "phantoms": 5.0}
    assert run_system(ghosts)[0]["cost"] > rows["perfect"]["cost"]  # type: ignore[operator]


def test_routing_is_described_by_policy_v_and_options() -> None:
    assert spec(case(True, policy="potus", v=3.0, options="spread=none")) == "potus:v=3.0,spread=none"
    assert spec(case(True, policy="shuffle", v=3.0)) == "shuffle"


def test_summaries_do_what_they_say() -> None:
    straight = fit_line(pd.Series([1.0, 3.0, 5.0], index=[0.0, 1.0, 2.0]))
    assert straight == pytest.approx((2.0, 1.0, 1.0))
    rising = pd.Series([1.0, 3.0], index=[0.0, 10.0])
    assert crossing(rising, 2.0) == 5.0
    assert crossing(rising, 0.5) == 0.0
    assert crossing(rising, 9.0) == np.inf
    assert spread(np.array([1.0, 3.0])) == "2.00 ±1.41"
    assert signed_spread(np.array([-0.05])) == "−5.0 ±0.0 %"
    assert upper(np.array([1.0, 3.0])) == pytest.approx(2.0 + 6.3138, abs=1e-3)  # Student's t, one degree of freedom
    assert upper(np.array([2.0])) == 2.0
    runs = pd.DataFrame({"growth": [0.0, -0.005], "unfinished": [0.03, 0.0]})
    assert steady(runs)
    assert not steady(runs.assign(growth=[0.0, -0.02]))
    assert not steady(runs.assign(unfinished=[0.06, 0.0]))
    table = pd.DataFrame([[1.0, 0.5, 0.25], [2.0, 1.0, 0.5]], columns=[1.0, 2.0, 4.0])
    assert power(table, np.random.default_rng(0)) == pytest.approx((-1.0, -1.0, -1.0))


@pytest.mark.parametrize(("left", "holds"), [(0.33, False), (0.8, True), (0.95, False), (1.2, False)])
def test_a_fall_by_about_a_fifth_is_bounded_both_ways(left: float, holds: bool) -> None:
    rows = pd.DataFrame(
        {"predictor": name, "v": v, "response": response, "seed": 0, "served": 1.0}
        for name in predictions.NAMES
        for v, response in ((0.0, 10.0), (5.0, 10.0 * left))
    )
    assert predictions._dip_claim(rows).holds is holds


def costs_of(falls: float, shuffle: Sequence[float]) -> pd.DataFrame:
    """Return rows of POTUS's cost that falls by a share from V = 1 to 100, and of Shuffle's, a value a seed."""
    shared = {"optimum": 1.0, "growth": 0.0, "unfinished": 0.0, "response": 1.0, "backlog": 1.0, "unequal": 0.2}
    ways = ("", *(f"spread={way}" for way in costs.OTHER_SPREADS))
    made = []
    for seed, other in enumerate(shuffle):
        for window in (0, costs.WINDOW):
            own = {**shared, "seed": seed, "window": window}
            for v in costs.WEIGHTS:
                cost = 1.0 - falls * (v - 1.0) / 99.0
                made += [{**own, "policy": "potus", "options": way, "v": v, "cost": cost} for way in ways]
            made += [{**own, "policy": "potus-plus", "options": "", "v": v, "cost": 1.0} for v in costs.PLUS_WEIGHTS]
        made.append({**shared, "seed": seed, "window": 0, "policy": "shuffle", "options": "", "v": 0.0, "cost": other})
    return pd.DataFrame(made)


@pytest.mark.parametrize(("falls", "holds"), [(0.0001, False), (0.004, False), (0.02, True), (-0.02, False)])
def test_a_cost_that_hardly_falls_does_not_fall(falls: float, holds: bool) -> None:
    found = {claim.claim: claim for claim in costs._ahead_claims(costs_of(falls, [1.1, 1.1]))}
    assert bool(found["cost falls with V as without look-ahead"].holds) is holds


@pytest.mark.parametrize(("shuffle", "holds"), [((1.05, 1.08), True), ((0.99, 1.2), False), ((1.0, 1.0), False)])
def test_less_than_shuffle_is_less_with_every_seed(shuffle: tuple[float, ...], holds: bool) -> None:
    rows = costs_of(0.0, shuffle)
    found = {claim.claim: claim for claim in costs._claims(rows[rows["window"] == 0])}
    assert found["POTUS costs up to 7.6 % less than Shuffle"].holds is holds
