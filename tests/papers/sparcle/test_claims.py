"""Claims of SPARCLE's figures can hold and fail: judged on rows as the paper has them, and on others."""

import numpy as np
import pandas as pd
import pytest

from penstock.experiments.statistics import signed
from penstock.papers.sparcle import energies, faces, names, networks, optima, paths, rates, ratios, refinement, sharing
from penstock.papers.sparcle.runs import ASKED, BALANCED, LINKS
from penstock.papers.sparcle.summaries import gain_over, half_to_twice, percentiles
from penstock.papers.sparcle.summaries import ratios as to_optimum
from tests.papers.sparcle.made_up import holds, rated


def test_near_the_optimum_is_judged_case_by_case() -> None:
    (figure,) = optima.FIGURES
    rows = rated(figure, lambda rows: {"canonical": (rows["case"] != BALANCED) * 0.2 + 0.8})
    claims = list(figure.claims(rows))
    assert holds(claims, "link-bottleneck: SPARCLE is almost always")
    assert not holds(claims, "balanced: SPARCLE is almost always")
    assert holds(claims, "check: balanced")
    assert not holds(claims, "check: link-bottleneck")


def test_gains_as_in_the_paper_hold_and_none_does_not() -> None:
    figure = rates.FIGURES[0]

    def papers(rows: pd.DataFrame) -> dict[str, "pd.Series[float] | float"]:
        balanced = {name: 1.0 / (1.0 + paper) for name, paper in rates.PAPER_GAINS.items()}
        weak = dict.fromkeys(rates.WEAK, 0.1)
        return {
            name: pd.Series(
                np.where(rows["case"] == BALANCED, value, np.where(rows["case"] == LINKS, weak.get(name, 0.77), 1.0))
            )
            for name, value in balanced.items()
        }

    assert all(claim.holds for claim in figure.claims(rated(figure, papers)))
    level = list(figure.claims(rated(figure, lambda rows: {})))
    assert [claim.holds for claim in level if "balanced" in claim.claim] == [False] * 5
    assert not holds(level, "link-bottleneck: SPARCLE above GS")
    assert not holds(level, "always below")
    assert holds(level, "equivalent")


def test_falling_off_is_worse_than_with_cpu_alone() -> None:
    figure = rates.FIGURES[1]

    def fallen(rows: pd.DataFrame) -> dict[str, "pd.Series[float] | float"]:
        share = (rows["memory"] == 0) * 0.5 + 0.5
        return {"gs": share, "vne": share}

    assert all(claim.holds for claim in figure.claims(rated(figure, fallen)))
    claims = list(figure.claims(rated(figure, lambda rows: {"gs": 0.5, "vne": 1.2})))
    assert not any(claim.holds for claim in claims if "falls off" in claim.claim or "is best" in claim.claim)


def test_where_claims_hold_names_the_ratios() -> None:
    (figure,) = ratios.FIGURES

    def at_four(rows: pd.DataFrame) -> dict[str, "pd.Series[float] | float"]:
        four = rows["links"] == 4.0
        return {
            **{name: pd.Series(np.where(four, 1.0 / (1.0 + paper), 2.0)) for name, paper in rates.PAPER_GAINS.items()},
            names.OPTIMUM: pd.Series(np.where(four, 1.0, 2.0)),
        }

    claims = list(figure.claims(rated(figure, at_four)))
    assert {claim.why for claim in claims if "at some ratio" in claim.claim} == {"holds at 4"}
    assert holds(claims, "hold only where links are 3 to 5 times")
    everywhere = rated(figure, lambda rows: {name: 1.0 / (1.0 + paper) for name, paper in rates.PAPER_GAINS.items()})
    assert not holds(list(figure.claims(everywhere)), "hold only where links are 3 to 5 times")
    nowhere = list(figure.claims(rated(figure, lambda rows: {names.OPTIMUM: 2.0})))
    assert {claim.why for claim in nowhere if "at some ratio" in claim.claim} == {
        "at none",
        "at none" + next(iter(ratios.REASONS.values())),
    }
    worse = list(figure.claims(rated(figure, lambda rows: {names.SPARCLE: 0.9})))
    assert not holds(worse, "our default")


def test_refinement_is_judged_on_mean_low_end_and_time() -> None:
    (figure,) = refinement.FIGURES
    good = list(figure.claims(rated(figure, lambda rows: {})))
    assert holds(good, "ours: star, diamond")
    assert holds(good, "never worse")
    assert holds(good, "50 ms")
    bad = list(figure.claims(rated(figure, lambda rows: {"refined": 0.98, "refined_ms": 80.0, "canonical": 0.67})))
    assert not holds(bad, "ours: star, diamond")
    assert not holds(bad, "never worse")
    assert not holds(bad, "50 ms")
    assert holds(bad, "balanced star 1 : 1")
    now_and_then = rated(figure, lambda rows: {"refined_ms": pd.Series(np.where(rows.index % 20 == 0, 100.0, 20.0))})
    assert not holds(list(figure.claims(now_and_then)), "50 ms")
    assert not holds(good, "balanced star 1 : 1")


def face_rows(**changed: float) -> pd.DataFrame:
    """Return rows of Figure 6 as the paper has them; `changed` at every bandwidth."""
    (figure,) = faces.FIGURES
    rows = pd.DataFrame([dict(one) for one in figure.cases(True)])
    rows = rows.assign(**dict.fromkeys(names.EVERY, 1.0))
    rows["cloud"] = rows["field_mbps"].map({0.5: 1 / 9, 4.0: 0.5, 10.0: 1.0, 22.0: 1 / 1.23})
    rows = rows.assign(heft=0.25, vne=1 / 14.5, **{"t-storm": 1 / 1.63})
    rows = rows.assign(**{f"{name}_in_field": 0 for name in ("canonical", "sparcle", "refined")})
    return rows.assign(highest=1.0, to_cloud_by_order="9.0 in 120").assign(**changed)


def test_face_detection_holds_of_the_papers_figures_and_fails_of_others() -> None:
    (figure,) = faces.FIGURES
    claims = list(figure.claims(face_rows()))
    expected = "equals the optimum", "9 times", "only the cloud", "at 22 Mbps", "over HEFT", "over T-Storm", "over VNE"
    for words in expected:
        found = [claim for claim in claims if words in claim.claim and "check" not in claim.claim]
        assert [claim.holds for claim in found] == [True], words
    others = list(figure.claims(face_rows(canonical=0.4, canonical_in_field=2)))
    assert not any(claim.holds for claim in others if "check" not in claim.claim and "VNE" not in claim.claim)


def test_paths_are_judged_by_medians() -> None:
    (figure,) = paths.FIGURES
    table = {1: (2.67, 0.85, 0.0), 2: (1.2, 0.94, 0.78), 3: (0.42, 0.98, 0.85)}
    rows = pd.DataFrame(
        {**one, "paths": number, "rate": rate, "any": any_, "carries": carried, "distinct": 4 + 4 * number}
        for one in figure.cases(True)
        for number, (rate, any_, carried) in table.items()
    )
    assert all(claim.holds for claim in figure.claims(rows))
    worse = rows.assign(any=0.5, carries=0.5, rate=1.0)
    assert not any(claim.holds for claim in figure.claims(worse))


def test_energy_holds_of_gains_as_in_the_paper_and_fails_of_none() -> None:
    (figure,) = energies.FIGURES
    cases = pd.DataFrame([dict(one) for one in figure.cases(True)])
    policies = [name + way for name in ASKED["heuristics"] for way in ("", "_radios")]
    level = cases.assign(**dict.fromkeys(policies, 1.0))
    papers = level.assign(gs=0.6, gr=0.6, **{name: 1.0 / (1.0 + paper) for name, paper in energies.PAPER_GAINS.items()})
    assert all(claim.holds for claim in figure.claims(papers))
    assert [claim.holds for claim in figure.claims(level)] == [False] * 5 + [True]


def test_later_paths_use_what_earlier_ones_left() -> None:
    rows = paths.run_paths({"links": "full-duplex", "ratio": 4.0, "policy": "canonical", "seed": 1})
    found = [float(row["rate"]) for row in rows]
    assert len(found) > 1
    assert found[0] >= found[1]
    assert [row["total"] for row in rows] == pytest.approx(np.cumsum(found))
    available = [float(row["any"]) for row in rows]
    assert available == sorted(available)
    assert len(rows) == paths.MOST
    assert available[0] == pytest.approx((1 - paths.FAILS) ** int(rows[0]["used"]))


def test_utility_and_admitted_rates_are_judged_by_means() -> None:
    pair, guaranteed = sharing.FIGURES
    seeds = pd.DataFrame({"seed": range(4)})
    level = seeds.assign(**dict.fromkeys(sharing.ASKED, -3.0), **{f"{name}_ratio": 2.0 for name in sharing.ASKED})
    assert all(claim.holds for claim in pair.claims(level))
    lost = pair.claims(level.assign(gs=-1.0, canonical_ratio=0.5))
    assert not any(claim.holds for claim in lost)
    sums = seeds.assign(asked=2.0, **dict.fromkeys(sharing.ASKED, 1.0))
    sums = sums.assign(**{f"{name}_admitted": 5 for name in sharing.ASKED})
    assert all(claim.holds for claim in guaranteed.claims(sums))
    assert not any(claim.holds for claim in guaranteed.claims(sums.assign(gs=1.5)))


def network_rows() -> pd.DataFrame:
    shared = {"nodes": 5, "asked": 2.0, "guaranteed": 1.0, "utility": -10.0, "geometric": 0.1, "paths": 1.0}
    shared |= {"refused_guaranteed": 1, "refused_best_effort": 1, "median_ms": 5.0, "worst_ms": 9.0, "links": 4.0}
    return pd.DataFrame({"network": name, "policy": policy, **shared} for name in "ab" for policy in names.EVERY)


def test_on_real_networks_no_baseline_may_admit_more() -> None:
    (figure,) = networks.FIGURES
    rows = network_rows()
    assert all(claim.holds for claim in figure.claims(rows))
    more = rows.assign(guaranteed=np.where((rows["network"] == "b") & (rows["policy"] == "vne"), 1.5, 1.0))
    assert [claim.holds for claim in figure.claims(more)] == [True, False, True, True]
    happier = rows.assign(utility=np.where(rows["policy"] == "gs", -5.0, -10.0))
    assert [claim.holds for claim in figure.claims(happier)] == [True, True, True, False]


def test_on_real_networks_the_default_is_judged_against_the_published_algorithm() -> None:
    (figure,) = networks.FIGURES
    rows = network_rows()
    published = rows["policy"] == "canonical"
    below = rows.assign(guaranteed=np.where(published, np.where(rows["network"] == "b", 0.8, 0.5), 1.0))
    (claim,) = [one for one in figure.claims(below) if "as published" in one.claim]
    assert claim.holds
    assert claim.ours == "a +100 %, b +25 %; it admits 50% to 50% of what is asked for"
    assert not holds(list(figure.claims(rows.assign(guaranteed=np.where(published, 1.2, 1.0)))), "as published")


def test_absent_networks_are_said_to_be_skipped() -> None:
    (figure,) = networks.FIGURES
    (claim,) = figure.claims(pd.DataFrame([{"network": "", "policy": "", "applications": 0, "seed": 0}]))
    assert claim.ours == "skipped"
    assert "not beside the repository" in claim.why


def test_summaries_do_what_they_say() -> None:
    rows = pd.DataFrame({"a": [1.0, 3.0], "b": [1.0, 1.0], "none": [0.0, 0.0]})
    assert gain_over(rows, "a", "b").value == pytest.approx(1.0)
    assert to_optimum(rows, "a", "b").tolist() == [1.0, 3.0]
    assert to_optimum(rows, "none", "none").tolist() == [1.0, 1.0]
    assert percentiles(np.array([1.0, 1.0])) == "mean 1.000, p5 1.00, p25 1.00, p50 1.00, p75 1.00"
    assert signed(-0.254, 0) == "−25 %"
    assert half_to_twice(0.3, 0.3)
    assert not half_to_twice(0.1, 0.3)
    assert not half_to_twice(0.7, 0.3)
