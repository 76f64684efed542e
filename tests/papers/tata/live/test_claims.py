"""What is claimed of live rows, and that every claim fails on rows that break it."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from penstock.experiments.figure import Claim, Figure
from penstock.papers.tata.live import FIGURES
from penstock.papers.tata.live.applications import LIVE, POLICIES, delays
from penstock.papers.tata.live.estimator import ESTIMATOR, NUMBER
from penstock.papers.tata.live.settings import APPLICATIONS
from penstock.papers.tata.live.stepped import Part


def live_rows(
    tps: Mapping[str, float],
    p99_ms: Mapping[str, float] | None = None,
    estimate: float = 1.0,
    skipped: str = "",
    live: float = 1.0,
) -> pd.DataFrame:
    """Return a row per application and policy, of these throughputs and delays; estimates and live runs relative."""
    p99 = p99_ms or dict.fromkeys(tps, 100.0)
    return pd.DataFrame(
        {"application": name, "policy": policy, "repetition": 0, "skipped": skipped, "run_tps": rate,
         "estimate_tps": estimate * rate, "twin_tps": estimate * rate, "run_p99_ms": p99[policy],
         "live_tps": live * rate, "live_late": 0.5 if np.isnan(live) else 0.0}
        for name in APPLICATIONS
        for policy, rate in tps.items()
    )  # fmt: skip


def estimator_rows(tata: float = 1.2, plan: float = 1.0, twin: float = 1.0) -> pd.DataFrame:
    """Return rows of ten topologies, six of which ran, with estimates relative to what was measured."""
    live = np.linspace(20.0, 110.0, 10)
    wave = 1 + 0.3 * np.sin(7 * live)  # an error that no line takes away
    return pd.DataFrame(
        {"number": number, "runs": number < 6, "streams": ("fields", "shuffle")[number % 2],
         "tata_tps": tata * wave[number] * tps, "plan_tps": plan * tps, "twin_tps": twin * tps,
         "run_tps": tps, "live_tps": tps if number < 6 else float("nan"), "late": 0.1 if number < 6 else float("nan")}
        for number, tps in enumerate(live)
    )  # fmt: skip


def claim(figure: Figure, rows: pd.DataFrame, part: str) -> Claim:
    [found] = [one for one in figure.claims(rows) if part in one.claim]
    return found


def test_all_figures_are_live_and_quick_ones_are_smaller() -> None:
    assert all(figure.live for figure in FIGURES)
    cases = LIVE.cases(False)
    assert {case["application"] for case in cases} == set(APPLICATIONS)
    assert {case["policy"] for case in cases} == set(POLICIES) >= {"tata", "neural", "ni", "flink", "i-storm"}
    assert len(LIVE.cases(True)) < len(cases) / 10
    assert len(ESTIMATOR.cases(False)) == NUMBER == 100
    assert sum(bool(case["runs"]) for case in ESTIMATOR.cases(True)) < sum(
        bool(case["runs"]) for case in ESTIMATOR.cases(False)
    )


# Applications


def test_a_gain_is_judged_by_the_papers_figures_by_application() -> None:
    near = live_rows({"flink": 10.0, "i-storm": 11.0, "ni": 12.0, "tata": 13.0})
    for baseline in ("flink", "i-storm", "ni"):
        assert claim(LIVE, near, f"tata's throughput is above {baseline}'s").holds
    assert "+30.0 %" in claim(LIVE, near, "tata's throughput is above flink's").ours
    far = live_rows({"flink": 10.0, "i-storm": 11.0, "ni": 12.0, "tata": 12.1})
    for baseline in ("flink", "i-storm", "ni"):
        assert not claim(LIVE, far, f"tata's throughput is above {baseline}'s").holds


def test_ours_must_be_above_on_average_and_in_no_application_below() -> None:
    rows = live_rows({"flink": 10.0, "local-search": 11.0})
    held = claim(LIVE, rows, "local-search's throughput")
    assert held.holds
    assert held.claim.startswith("ours: ")
    rows.loc[(rows["application"] == "word-count") & (rows["policy"] == "local-search"), "run_tps"] = 9.0
    lower = claim(LIVE, rows, "local-search's throughput")
    assert not lower.holds
    assert lower.why == "below flink's: word-count"


def test_a_delay_that_is_the_highest_anywhere_does_not_hold() -> None:
    tps = {"flink": 10.0, "i-storm": 10.0, "tata": 10.0}
    best = claim(LIVE, live_rows(tps, {"flink": 90.0, "i-storm": 120.0, "tata": 80.0}), "is never the highest")
    assert best.holds
    between = claim(LIVE, live_rows(tps, {"flink": 90.0, "i-storm": 120.0, "tata": 100.0}), "is never the highest")
    assert not between.holds  # on log processing the paper's is the lowest
    highest = claim(LIVE, live_rows(tps, {"flink": 90.0, "i-storm": 120.0, "tata": 130.0}), "is never the highest")
    assert not highest.holds
    assert "highest: throughput-test" in highest.why


def test_delays_at_an_equal_load_are_compared_with_each_baseline() -> None:
    rows = live_rows({"flink": 10.0, "i-storm": 10.0, "neural": 10.0}, {"flink": 90.0, "i-storm": 60.0, "neural": 80.0})
    assert claim(LIVE, rows, "neural's p99 is below flink's").holds
    assert not claim(LIVE, rows, "neural's p99 is below i-storm's").holds


def test_an_estimate_that_is_off_names_the_applications() -> None:
    tps = {"flink": 10.0, "local-search": 11.0}
    assert claim(LIVE, live_rows(tps, estimate=1.05), "planning's estimate").holds
    off = claim(LIVE, live_rows(tps, estimate=1.1), "planning's estimate")
    assert not off.holds
    assert not claim(LIVE, live_rows(tps, estimate=1.1), "the twin's prediction").holds
    assert "word-count +10 %" in off.why


def test_live_runs_are_compared_with_those_on_a_manual_clock_where_the_host_kept_pace() -> None:
    tps = {"flink": 10.0, "local-search": 11.0}
    assert claim(LIVE, live_rows(tps, live=0.98), "live, the throughput").holds
    assert not claim(LIVE, live_rows(tps, live=0.9), "live, the throughput").holds
    none = claim(LIVE, live_rows(tps, live=float("nan")), "live, the throughput")
    assert not none.holds
    assert none.why == "0 were not started, as the host was busy; the others lagged at every attempt"


def test_rows_of_runs_that_were_not_measured_are_left_out_and_named() -> None:
    rows = live_rows({"flink": 10.0, "local-search": 11.0})
    assert claim(LIVE, rows, "every run was measured").holds
    missing = live_rows({"tata": float("nan")}, skipped="no policy is named tata").head(2)
    found = claim(LIVE, pd.concat([rows, missing]), "every run was measured")
    assert not found.holds
    assert found.why == "no policy is named tata (2 runs)"
    assert claim(LIVE, pd.concat([rows, missing]), "planning's estimate").holds
    alone = LIVE.claims(missing)
    assert [one.holds for one in alone] == [False]
    LIVE.draw(missing, Picture())


def test_delays_are_of_the_tuples_that_ended_between_two_times() -> None:
    tuples = pd.DataFrame(
        {"emitted": [0.0, 1.0, 1.5, 2.0, 2.5], "finished": [0.5, 2.0, 3.0, 9.0, 2.6],
         "complete": [True, True, True, True, False]}
    )  # fmt: skip
    found = delays(tuples, Part(1.0, 4.0), "run")
    assert found["run_tuples"] == 2
    assert found["run_p99_ms"] == pytest.approx(np.percentile([1000.0, 1500.0], 99))
    assert np.isnan(delays(tuples, Part(20.0, 30.0), "run")["run_p95_ms"])


# Estimator


def test_estimates_are_judged_live_and_on_a_manual_clock() -> None:
    rows = estimator_rows()
    assert claim(ESTIMATOR, rows, "planning's estimate of the throughput live").holds
    assert claim(ESTIMATOR, rows, "the twin of the throughput live").holds
    assert claim(ESTIMATOR, rows, "the twin is nearer than TATA's estimate on a manual clock").holds
    assert "6 topologies" in claim(ESTIMATOR, rows, "planning's estimate of the throughput live").ours
    assert "10 topologies" in claim(ESTIMATOR, rows, "planning's estimate of the throughput on a manual clock").ours
    assert not any("live is right" in one.claim for one in ESTIMATOR.claims(rows.assign(live_tps=float("nan"))))


def test_an_estimate_that_is_off_does_not_hold_and_names_the_furthest() -> None:
    off = estimator_rows(plan=1.2)
    for where in ("live", "on a manual clock"):
        found = claim(ESTIMATOR, off, f"planning's estimate of the throughput {where}")
        assert not found.holds
        assert found.why.startswith("furthest: topology ")
    assert not claim(ESTIMATOR, estimator_rows(twin=0.9), "the twin of the throughput live").holds
    worse = estimator_rows(plan=2.0)
    assert not claim(ESTIMATOR, worse, "planning's estimate is nearer than TATA's estimate live").holds


def test_a_scale_is_taken_away_by_the_fit_and_an_error_is_not() -> None:
    rows = estimator_rows()
    scaled = rows.assign(tata_tps=3.0 * rows["run_tps"] + 5.0)
    for where in ("(live)", "(on a manual clock)"):
        assert not claim(ESTIMATOR, rows, f"deviates from runs {where}").holds
        assert not claim(ESTIMATOR, rows, f"and {where} by less than 10 %").holds
        assert claim(ESTIMATOR, scaled, f"deviates from runs {where}").holds
        assert claim(ESTIMATOR, scaled, f"and {where} by less than 10 %").ours == "100%"


def test_topologies_that_could_not_be_emulated_are_left_out_and_named() -> None:
    rows = estimator_rows()
    assert claim(ESTIMATOR, rows, "emulated truly").holds
    rows.loc[[3, 4], "live_tps"] = float("nan")
    rows.loc[3, "late"] = float("nan")
    found = claim(ESTIMATOR, rows, "emulated truly")
    assert not found.holds
    assert found.why == "1 were not started, as the host was busy; the others lagged at every attempt"
    assert "4 topologies" in claim(ESTIMATOR, rows, "planning's estimate of the throughput live").ours


@pytest.mark.parametrize(
    ("figure", "rows"), [(LIVE, live_rows({"flink": 9.0, "local-search": 12.0})), (ESTIMATOR, estimator_rows())]
)
def test_pictures_name_what_their_axes_measure(figure: Figure, rows: pd.DataFrame) -> None:
    picture = Picture()
    figure.draw(rows, picture)
    drawn = [axis for axis in picture.axes if axis.axison]
    assert drawn
    assert all("ms" in axis.get_ylabel() or "tuples/s" in axis.get_ylabel() for axis in drawn)
