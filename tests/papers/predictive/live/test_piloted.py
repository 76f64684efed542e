"""Rows of passes: what is taken of a run's records and of an autopilot's ledger."""

import numpy as np
import pandas as pd
import pytest

from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import Alternative, Decision, DecisionOutcome, Episode, Inputs, Opening, TaskMove
from penstock.model.instance import Instance
from penstock.papers.predictive.live.passes import LAST_S, SETTLE_S, Pass, spans
from penstock.papers.predictive.live.piloted import Recorded, in_turn, pass_row
from penstock.papers.predictive.live.settings import SlowedApplication
from penstock.papers.predictive.live.tables import mean_times, path_ms
from penstock.papers.predictive.windows import Tables

SETTING = SlowedApplication("word-count", machines=2)
TABLES = Tables(Instance(SETTING.application, SETTING.cluster))
HOP_S = {"source->split": (0.1, 0.02), "split->count": (0.05, 0.01), "count->database": (0.2, 0.03)}
"""Over each stream and then at its target."""
PATH_MS = 410.0


def hops_at(times: list[float], factor: float = 1.0) -> pd.DataFrame:
    """Return a hop over each stream, taken up at each time."""
    return pd.DataFrame(
        {"run": "one", "stream": stream, "target_component": stream.partition("->")[2], "started": at,
         "emitted": at - factor * way, "processing": factor * processing}
        for at in times
        for stream, (way, processing) in HOP_S.items()
    )  # fmt: skip


def trees_at(times: list[float], latency: float) -> pd.DataFrame:
    """Return a source tuple due at each time."""
    ends = np.array(times) + latency
    return pd.DataFrame({"run": "one", "due": times, "finished": ends, "latency": latency, "complete": True})


def an_episode(acts: bool = True) -> Episode:
    application, cluster = SETTING.application, SETTING.cluster
    inputs = Inputs(
        policy="predictive", objective="delay", seed=0, placement={"split[0]": "a/0"}, rates={}, readings=[],
        held_s=0.1, guard=Guard(),
    )  # fmt: skip
    alternatives = [
        Alternative(name="stay", moves=0, score=-0.4, gain=0.0),
        Alternative(name="predictive", moves=1, score=-0.3, gain=0.25, chosen=True),
    ]
    decision = Decision(
        at=1.0, number=1, time="", inputs=inputs, alternatives=alternatives, moves=[TaskMove("split[0]", "a/0", "b/0")],
        gain=0.25, acts=acts, reason="a gain", before_s=0.5, bound_s=0.55, cost_s=0.0, predicted_s=0.3,
    )  # fmt: skip
    outcome = DecisionOutcome(at=2.0, number=1, verdict="kept" if acts else "held", realised_s=0.42 if acts else None)
    return Episode(Opening(at=0.0, run="one", time="", application=application, cluster=cluster), decision, outcome)


def a_pass(acts: bool = True) -> Pass:
    return Pass("one", "predictive", 1, (0.0, 10.0), (20.0, 30.0), [an_episode(acts)], 0.1)


def recorded() -> Recorded:
    hops = [hops_at([1.0, 9.0]), hops_at([15.0], 9.0), hops_at([21.0, 29.0], 0.8)]
    trees = [trees_at([1.0, 9.0], 0.5), trees_at([15.0], 9.0), trees_at([21.0, 29.0], 0.45)]
    return Recorded(pd.concat(trees), pd.concat(hops))


def test_every_policy_comes_first_in_every_other_run() -> None:
    assert in_turn(0) == ("predictive", "predictive-search")
    assert in_turn(1) == in_turn(0)[::-1]
    assert in_turn(2) == in_turn(0)


def test_what_is_compared_is_settled_and_no_tuple_of_it_meets_a_move() -> None:
    before, after = spans(3.0, 60.0, [(14.0, 18.0), (40.0, 45.0)])
    assert before == (3.0, 14.0 - LAST_S)
    assert after == (45.0 + SETTLE_S, 60.0)
    assert spans(3.0, 13.0, []) == ((3.0, 8.0), (8.0, 13.0))


def test_mean_times_are_those_of_hops_taken_up_in_a_stretch() -> None:
    times = mean_times(recorded().hops, 0.0, 16.0)
    assert times["component", "split"] == pytest.approx(0.02 * (1 + 1 + 9) / 3)
    assert times["stream", "split->count"] == pytest.approx(0.05 * (1 + 1 + 9) / 3)
    assert ("component", "source") not in times


def test_a_path_is_as_long_as_its_hops_and_unknown_where_one_was_not_seen() -> None:
    hops = recorded().hops
    assert path_ms(TABLES, hops, 0.0, 10.0) == pytest.approx(PATH_MS)
    assert np.isnan(path_ms(TABLES, hops[hops["stream"] != "split->count"], 0.0, 10.0))
    assert np.isnan(path_ms(TABLES, hops, 100.0, 110.0))


def test_a_row_has_trees_and_paths_of_the_same_stretches_beside_what_was_predicted() -> None:
    row = pass_row(4, a_pass(), recorded(), TABLES)
    assert (row["repetition"], row["policy"], row["turn"]) == (4, "predictive", 1)
    assert row["ratio"] == pytest.approx(0.9)
    assert (row["before_path_ms"], row["after_path_ms"]) == pytest.approx((PATH_MS, 0.8 * PATH_MS))
    assert row["path_ratio"] == pytest.approx(0.8)
    assert (row["predicted_before_ms"], row["predicted_ms"]) == pytest.approx((400.0, 300.0))
    assert (row["read_before_ms"], row["read_after_ms"], row["bound_ms"]) == pytest.approx((500.0, 420.0, 550.0))
    assert (row["moves"], row["verdict"], row["tuples"], row["unfinished"]) == (1, "kept", 4, 0)


def test_a_row_of_a_pass_in_which_nothing_was_done_has_no_prediction_and_no_bound() -> None:
    row = pass_row(0, a_pass(acts=False), recorded(), TABLES)
    assert (row["verdict"], row["moves"], row["predicted_gain"]) == ("held", 0, 0.0)
    assert all(np.isnan(float(row[name])) for name in ("predicted_before_ms", "predicted_ms", "bound_ms"))
    assert row["reason"] == "a gain"


def test_records_of_other_runs_do_not_count() -> None:
    both = recorded()
    other = Recorded(both.tuples.assign(run="two", latency=7.0), both.hops.assign(run="two", processing=7.0))
    joined = Recorded(pd.concat([both.tuples, other.tuples]), pd.concat([both.hops, other.hops]))
    assert pass_row(0, a_pass(), joined.of("one"), TABLES) == pass_row(0, a_pass(), both, TABLES)
