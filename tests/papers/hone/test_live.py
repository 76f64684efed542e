"""Live experiments: what comes in episodes, which tuple belongs to which, how choices compare, what is claimed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from penstock.experiments.figure import Case, Claim, Figure, LiveRun, Row, Value
from penstock.experiments.live_cases import live_session, partial_table, reproduce_live
from penstock.experiments.reproduction import keep
from penstock.model.cluster import Cluster, Machine
from penstock.papers.hone.live import FIGURES
from penstock.papers.hone.live.episodes import BURSTY, SLOT_S, STEADY, Episodes, EpisodeSentences, Lengths
from penstock.papers.hone.live.grid import CHOICES, LIVE, LOADS, PLUS, SEEDS, default_policies
from penstock.papers.hone.live.measures import Seen, beginnings, cell_rows, placed, run_and_measure
from penstock.papers.hone.live.ratios import MEASURES, against, judge, to_best
from penstock.papers.hone.live.settings import (
    CARD_BUSY,
    HONE_BUSY,
    EmulatedWordCount,
    hone_testbed,
    one_slow_machine,
    split,
)
from penstock.papers.hone.live.signals import LIVE_TAU, TAUS, longest_first
from penstock.papers.hone.live.testbed import FIGURE_10, FIGURE_11, FIGURE_13, FIGURE_14, RRB, STORM, hone_case
from penstock.papers.hone.live.trial import PLAIN, Choice, Conducted, Trial

LENGTHS = Lengths(settle=0.5, counted=1.0, tail=0.25, pause=0.25)
TWO = (PLAIN, Choice("potus-plus", "fifo"))


def episodes(kind: str = STEADY, load: float = 40.0, choices: int = 2, rounds: int = 2, tasks: int = 3) -> Episodes:
    return Episodes(kind, load, choices, rounds, tasks, LENGTHS, 7)


# Episodes


@pytest.mark.parametrize("kind", [STEADY, BURSTY])
def test_all_choices_of_a_round_have_the_same_arrivals_and_the_next_round_has_others(kind: str) -> None:
    made = episodes(kind)
    period = round(LENGTHS.period / SLOT_S)
    parts = made.whole.reshape(made.number, period)
    assert (parts[0] == parts[1]).all()  # the first, to warm up, is as those of the first round
    assert (parts[1] == parts[2]).all()
    assert (parts[3] == parts[4]).all()
    assert (parts[1] != parts[3]).any()
    assert (parts.sum(axis=1) == made.size).all()


@pytest.mark.parametrize("kind", [STEADY, BURSTY])
def test_an_episode_has_as_many_tuples_as_its_load_says_and_none_in_its_pause(kind: str) -> None:
    made = episodes(kind)
    assert made.size == 69  # 40 a second for 1.75 s, a multiple of the three tasks
    period, busy = (round(seconds / SLOT_S) for seconds in (LENGTHS.period, LENGTHS.busy))
    assert made.whole.reshape(made.number, period)[:, busy:].sum() == 0


def test_counts_go_on_with_nothing_behind_the_last_episode() -> None:
    made = episodes()
    longer = made.counts(len(made.whole) + 500, np.random.default_rng(0))
    assert (longer[: len(made.whole)] == made.whole).all()
    assert longer[len(made.whole) :].sum() == 0
    assert (made.counts(100, np.random.default_rng(1)) == longer[:100]).all()


def test_bursts_are_bursts() -> None:
    """Of Poisson arrivals few tenths of a second are empty, of bursts many."""

    def empty(kind: str) -> float:
        made = Episodes(kind, 100.0, 1, 30, 1, Lengths(0.0, 2.0, 0.0, 0.0), 0)
        return float((made.whole.reshape(-1, 100).sum(axis=1) == 0).mean())

    assert empty(STEADY) < 0.01 < 0.2 < empty(BURSTY)


def test_sentences_are_the_same_in_all_episodes_of_a_round() -> None:
    made = episodes()
    make = EpisodeSentences(made, 32)
    texts = [[make(number) for number in range(place * made.size, (place + 1) * made.size)] for place in range(5)]
    assert texts[0] == texts[1] == texts[2] != texts[3]
    assert texts[3] == texts[4]
    lengths = [len(split(text)) for text in texts[0] + texts[3]]
    assert min(lengths) >= 1
    assert max(lengths) <= 32
    assert 12 < np.mean(lengths) < 21


# Settings


def test_splits_of_the_slow_machine_limit_an_even_split_and_cards_are_as_busy_as_stated() -> None:
    setting = one_slow_machine()
    limit = setting.estimate.even_limits[0]
    assert (limit.kind, limit.name.partition("/")[0]) == ("slot", "m2")
    assert setting.card_share(setting.maximum_tps) == pytest.approx(CARD_BUSY)


def test_tasks_of_a_component_share_machines_in_every_setting() -> None:
    slow = _machines(one_slow_machine())
    assert slow["split"] == {"m0": 2, "m1": 2, "m2": 2}
    small, large = _machines(hone_testbed(3)), _machines(hone_testbed(10))
    assert small == {"source": {"n0": 10}, "split": {"n1": 10}, "count": {"n2": 10}}
    assert [len(large[name]) for name in ("source", "split", "count")] == [3, 4, 3]


def test_hone_s_busiest_card_is_nearly_full_at_the_highest_rate_and_less_so_with_fewer_words() -> None:
    assert hone_testbed().card_share(100.0) == pytest.approx(HONE_BUSY)
    assert hone_testbed(words=10).card_share(100.0) < 0.5 * HONE_BUSY


def _machines(setting: EmulatedWordCount) -> dict[str, dict[str, int]]:
    from penstock.planning.planner import plan_by

    flow = setting.flow(episodes())
    found: dict[str, dict[str, int]] = {}
    for name, slots in plan_by(setting.policy, flow.application, setting.cluster).tasks.items():
        for slot in slots:
            machine = slot.partition("/")[0]
            found.setdefault(name, {})[machine] = found.get(name, {}).get(machine, 0) + 1
    return found


# Which tuple belongs to which episode


def seen(made: Episodes, latency: Callable[[int, float], float]) -> Seen:
    """Make tables in which the latency of a tuple is a function of its episode and of when in it the tuple was due."""
    rows = []
    for episode in range(made.number):
        for place, slot in enumerate(made.times(made.round_of(episode)).tolist()):
            task = (episode * made.size + place) % made.tasks
            late, since = 100.0 + 0.01 * task, slot * SLOT_S  # sources do not begin at the same time
            due = late + made.begin(episode) + since
            took = latency(episode, since)
            rows.append((f"source[{task}]", due, due + took, took, True, 0.0, 0.0, 0.0, took))
    names = ["source", "due", "finished", "latency", "complete", "out_wait", "transfer", "wait", "processing"]
    tuples = pd.DataFrame(rows, columns=names).sample(frac=1.0, random_state=0)
    busy = pd.DataFrame({"episode": range(made.number), "task": "split[0]", "seconds": 0.8})
    return Seen(tuples, busy, pd.DataFrame())


def test_tuples_belong_to_the_episode_in_which_their_own_source_had_them_due() -> None:
    made = episodes()
    table = seen(made, lambda _, __: 0.1).tuples
    began = beginnings(table, made)
    assert began == pytest.approx({"source[0]": 100.0, "source[1]": 100.01, "source[2]": 100.02})
    found = placed(table, made)
    assert (found.groupby("episode").size() == made.size).all()
    assert found["due_s"].between(0.0, LENGTHS.busy).all()


def test_only_tuples_between_settling_and_the_tail_count() -> None:
    made, trial = episodes(), Trial(one_slow_machine(), episodes(), TWO)

    def latency(_: int, since: float) -> float:
        return 0.02 if LENGTHS.settle <= since < LENGTHS.settle + LENGTHS.counted else 9.0

    rows = cell_rows(seen(made, latency), Conducted(Path(), (0.0, 0.25, 0.0, 0.0, 0.0)), trial)
    assert [row["mean_ms"] for row in rows] == pytest.approx([20.0] * 4)
    assert [row["p99_ms"] for row in rows] == pytest.approx([20.0] * 4)
    assert [row["late"] for row in rows] == [0.25, 0.0, 0.0, 0.0]
    assert [row["busiest"] for row in rows] == pytest.approx([0.8] * 4)
    assert [row["round"] for row in rows] == [0, 0, 1, 1]
    assert {(row["round"], row["routing"]) for row in rows} == {(n, c.routing) for n in (0, 1) for c in TWO}


def test_tuples_that_are_left_and_carried_over_are_counted_and_unfinished_ones_are_not_measured() -> None:
    made, trial = episodes(), Trial(one_slow_machine(), episodes(), TWO)
    table = seen(made, lambda episode, _: 3.0 if episode == 2 else 0.01)
    lost = table.tuples.index[table.tuples["due"] > 100.05 + made.begin(4) + LENGTHS.settle + 0.5][:2]
    table.tuples.loc[lost, "complete"] = False
    rows = cell_rows(table, Conducted(Path(), (0.0,) * 5), trial)
    assert [row["left"] for row in rows] == [0, rows[1]["tuples"], 0, 0]
    assert [row["carried"] for row in rows] == [0, 0, made.size, 0]
    assert sum(int(row["unfinished"]) for row in rows) <= 2
    assert rows[1]["mean_ms"] == pytest.approx(3000.0)


# Ratios


def table(means: Mapping[Choice, Sequence[float]], **place: object) -> pd.DataFrame:
    """Make rows of one place from the means of every round."""
    rows = [
        {
            "arrivals": STEADY, "load": 0.8, "routing": choice.routing, "sending": choice.sending,
            "round": number, "seed": 0,
            "mean_ms": mean, "p99_ms": 3.0 * mean, "tuples": 100, "unfinished": 0, "left": 0, "carried": 0,
            "busiest": 0.8, "late": 0.0, **place,
        }
        for choice, values in means.items()
        for number, mean in enumerate(values)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_ratios_are_of_means_over_rounds_and_pairing_takes_the_noise_of_rounds_away() -> None:
    one, other = TWO
    hard = (10.0, 30.0, 90.0, 20.0, 50.0)  # rounds differ far more than choices
    rows = table({one: hard, other: [1.2 * value for value in hard]})
    found = to_best(rows, "mean_ms")
    assert found[one] == pytest.approx((1.0, 1.0, 1.0))
    assert found[other] == pytest.approx((1.2, 1.2, 1.2))
    assert against(rows, "p99_ms", one, other) == pytest.approx((1 / 1.2,) * 3)


def test_the_luck_of_the_best_is_in_the_limits() -> None:
    one, other = TWO
    found = to_best(table({one: (10, 12, 11, 9, 10), other: (12, 10, 9, 11, 10)}), "mean_ms")
    for choice in TWO:
        assert found[choice].ratio == pytest.approx(1.0)
        assert found[choice].low == 1.0
        assert 1.02 < found[choice].high < 1.3


def test_a_rule_is_judged_in_every_place_by_both_measures() -> None:
    one, other = TWO
    good = table({one: (10, 10), other: (9, 9)}, load=0.5)
    bad = table({one: (10, 10), other: (20, 20)}, load=0.95)
    judged = judge(pd.concat([good, bad]), lambda _, measure: other if measure == "mean_ms" else one)
    assert [found.within for found in judged] == [True, False, False, True]
    assert [found.best for found in judged] == [other, other, one, one]
    judged = judge(pd.concat([good, bad]), lambda _, __: other)
    assert [found.place for found in judged if not found.within] == ["steady 95 % mean", "steady 95 % p99"]
    assert judged[-1].ratio.ratio == pytest.approx(2.0)


# Claims


def grid(means: Callable[[Choice, float], float]) -> pd.DataFrame:
    tables = []
    for arrivals in (STEADY, BURSTY):
        for load in LOADS:
            values = {choice: [means(choice, load) * factor for factor in (1.0, 1.5, 0.7)] for choice in CHOICES}
            tables.append(table(values, arrivals=arrivals, load=load, busiest=load + 0.01))
    return pd.concat(tables, ignore_index=True)


def held(claims: Sequence[Claim]) -> dict[str, bool]:
    return {claim.claim: claim.holds for claim in claims}


def test_the_default_is_one_of_the_choices_and_is_judged_on_arrivals_it_was_not_chosen_on() -> None:
    assert {default_policies(kind, measure) for kind in (STEADY, BURSTY) for measure in MEASURES} <= set(CHOICES)
    assert {case["seed"] for case in LIVE.cases(False)} == set(SEEDS)
    assert not {0, 1} & set(SEEDS)


@pytest.mark.slow
def test_the_default_is_judged_by_its_upper_limits_and_the_rest_are_listed() -> None:
    routing = default_policies(STEADY, MEASURES[0]).routing
    rows = grid(lambda choice, load: 100.0 if choice.routing != routing else 90.0 if load < 0.9 else 120.0)
    claim = LIVE.claims(rows)[0]
    assert not claim.holds
    assert claim.ours.startswith("in 8 of 12")
    assert claim.why.count("95 %") == 4
    rows = grid(lambda choice, load: 100.0 if choice.routing != routing else 90.0 if load < 0.6 else 104.0)
    claim = LIVE.claims(rows)[0]
    assert claim.holds
    assert claim.ours.startswith("in 12 of 12; ratio 1.00 to 1.04")


@pytest.mark.slow
def test_where_a_policy_does_not_help_is_told() -> None:
    rows = grid(lambda choice, load: 100.0 if choice.sending == "fifo" else 130.0 if load > 0.9 else 80.0)
    reported = next(claim for claim in LIVE.claims(rows) if "longest backlog" in claim.claim)
    assert not reported.holds
    assert "in 40 of 60" in reported.ours
    assert "steady 95 % mean by round-robin" in reported.why
    assert held(LIVE.claims(rows))[f"ours: no routing is faster than {PLUS}, by either sending"]


@pytest.mark.slow
def test_a_late_emulation_and_a_wrong_maximum_are_told() -> None:
    rows = grid(lambda _, __: 100.0)
    claims = LIVE.claims(rows)
    assert [claim.holds for claim in claims[-2:]] == [True, True]
    claims = LIVE.claims(rows.assign(busiest=rows["load"] - 0.2, late=1.0))
    assert [claim.holds for claim in claims[-2:]] == [False, False]


def taus_table(means: Callable[[int, bool], float], taus: Sequence[int] = TAUS) -> pd.DataFrame:
    sendings = {longest_first(tau, form): means(tau, form) for tau in taus for form in (False, True)}
    routing = default_policies(STEADY, MEASURES[0]).routing
    return table({Choice(routing, sending): (mean, mean) for sending, mean in {"fifo": 100.0, **sendings}.items()})


def test_a_middle_tau_is_seen_and_so_is_a_signal_that_idles() -> None:
    middle = LIVE_TAU.claims(taus_table(lambda tau, form: 90.0 if form else 80.0 + abs(tau - 20)))
    assert [claim.holds for claim in middle] == [True, True, True]
    assert "best at 20 ms" in middle[0].ours
    idling = LIVE_TAU.claims(taus_table(lambda tau, form: 100.0 if form else 100.0 + 10 * tau))
    assert [claim.holds for claim in idling] == [False, True, False]


def hone_table(storm: float, lbf: Callable[[int], float], taus: Sequence[int], **case: Value) -> pd.DataFrame:
    means = {STORM: storm, RRB: 2.0 * storm, longest_first(80, True): 0.99 * storm}
    means |= {longest_first(tau, False): lbf(tau) for tau in taus}
    rows = table({Choice("round-robin", sending): (mean, mean) for sending, mean in means.items()})
    for number in range(10):
        rows[f"split[{number}]_ms"] = rows["mean_ms"] * (1.0 + 0.1 * number)
    for name, value in {**hone_case(False, taus), **case}.items():
        rows[name] = value
    return rows


def in_the_paper(times: int, tps: int, taus: Sequence[int]) -> pd.DataFrame:
    return hone_table(100.0 * times, lambda tau: times * (8.0 + abs(tau - 80) / 2), taus, tps=tps)


def test_hone_s_reductions_hold_where_they_are_as_in_the_paper_and_fail_where_not() -> None:
    taus, rates = (10, 50, 80, 120, 130), (1170, 1250, 1330)
    as_paper = pd.concat(in_the_paper(times, tps, taus) for times, tps in enumerate(rates, 1))
    assert [claim.holds for claim in FIGURE_10.claims(as_paper)] == [True] * 6
    idles = pd.concat(hone_table(100.0, lambda tau: 100.0 + tau, taus, tps=tps) for tps in rates)
    claims = FIGURE_10.claims(idles)
    assert [claim.holds for claim in claims] == [False, False, False, False, False, True]
    assert claims[0].ours == "+78.0 %"
    assert "never idles" in claims[0].why


def with_words(most: int, taus: Sequence[int]) -> pd.DataFrame:
    return hone_table(100.0, lambda _: 30.0 - most / 2, taus, words=most)


def test_stragglers_words_and_nodes_are_judged() -> None:
    taus = (10, 80, 130)
    good = hone_table(100.0, lambda tau: 30.0 - tau / 10, taus)
    assert [claim.holds for claim in FIGURE_11.claims(good)][:2] == [True, True]
    assert [claim.holds for claim in FIGURE_14.claims(good)][:2] == [True, True]
    words = pd.concat(with_words(most, taus) for most in (10, 20, 30))
    assert [claim.holds for claim in FIGURE_13.claims(words)][:2] == [True, True]
    bad = hone_table(100.0, lambda tau: 110.0 + tau, taus)
    assert not any(claim.holds for claim in (*FIGURE_11.claims(bad)[:2], *FIGURE_14.claims(bad)[:2]))


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_every_figure_is_live_has_cases_and_draws(figure: Figure) -> None:
    assert figure.live
    assert len(figure.cases(True)) <= len(figure.cases(False))
    if figure is LIVE:
        rows = grid(lambda choice, load: 100.0 + load + len(choice.text))
    elif figure is LIVE_TAU:
        rows = taus_table(lambda tau, form: 90.0 + tau * form)
    else:
        rows = hone_table(100.0, lambda tau: 80.0 + tau, (10, 80, 130))
    picture = Picture()
    figure.draw(rows, picture)
    assert all(axis.has_data() for axis in picture.axes)
    assert figure.claims(rows)


# Cases one after another

RUN: list[Case] = []


def run_fake(case: Case, report: Callable[[str], None]) -> Sequence[Row]:
    RUN.append(case)
    report(f"case {case['x']}")
    return [{"value": np.float64(case["x"])}]


def draw_fake(rows: pd.DataFrame, picture: Picture) -> None:
    picture.subplots().plot(rows["value"])


def fake(number: str, cases: Sequence[int], run: LiveRun = run_fake) -> Figure:
    return Figure(
        number,
        "a fake",
        lambda _: [{"x": x, "seed": 0} for x in cases],
        cast(Callable[[Case], Sequence[Row]], run),
        draw_fake,
        lambda rows: [Claim("sum", "", str(rows["value"].sum()), "", True)],
        live=True,
    )


def test_cases_of_several_figures_run_once_and_what_is_finished_is_kept(tmp_path: Path) -> None:
    RUN.clear()
    said: list[str] = []
    figures = [fake("a", (1, 2)), fake("b", (2, 3))]
    found = reproduce_live(figures, False, 5, tmp_path, lambda done, total, what: said.append(f"{done}/{total} {what}"))
    assert [(case["x"], case["seed"]) for case in RUN] == [(1, 5), (2, 5), (3, 5)]
    assert [claim.ours for claim in found.claims] == ["3.0", "5.0"]
    assert said[:3] == ["0/3 case 1", "1/3 ", "1/3 case 2"]
    assert pd.read_csv(partial_table(tmp_path, "b"))["value"].tolist() == [2.0, 3.0]
    keep(tmp_path, figures, found)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "claims.csv", "figure-a.csv", "figure-a.png", "figure-b.csv", "figure-b.png",
    ]  # fmt: skip


def test_a_case_that_fails_leaves_those_before_it(tmp_path: Path) -> None:
    def run_some(case: Case, report: Callable[[str], None]) -> Sequence[Row]:
        if case["x"] == 2:
            raise RuntimeError("killed")
        return run_fake(case, report)

    figure = fake("a", (1, 2), run_some)
    with pytest.raises(RuntimeError, match="killed"):
        reproduce_live([figure], False, 0, tmp_path, lambda *_: None)
    assert pd.read_csv(partial_table(tmp_path, "a"))["x"].tolist() == [1]


# A real run


@pytest.mark.spark
def test_a_trial_runs_live_and_every_choice_gets_its_tuples() -> None:
    machines = tuple(Machine(name=f"m{n}", cores=3, slots=3, network_mbps=1.0) for n in range(2))
    setting = EmulatedWordCount(
        Cluster(name="pair", machines=machines), "round-robin", (2, 2, 2), (1.0, 8.0, 0.5), words=6
    )
    choices = (PLAIN, Choice("potus-plus", "longest-backlog-first"))
    made = Episodes(STEADY, 40.0, 2, 2, 2, Lengths(0.2, 0.5, 0.1, 0.4), 1)
    said: list[str] = []
    with live_session():
        rows = pd.DataFrame(run_and_measure(Trial(setting, made, choices), said.append, with_splits=True))
    assert len(rows) == 4
    assert {tuple(pair) for pair in rows[["routing", "sending"]].to_numpy()} == {tuple(choice) for choice in choices}
    tuples = rows.groupby("round")["tuples"].nunique()
    assert (tuples == 1).all()  # both choices of a round had the very same
    assert rows["unfinished"].sum() == 0
    assert (rows["mean_ms"] > 9.0).all()  # at least what the tasks take
    assert (rows["p99_ms"] >= rows["mean_ms"]).all()
    assert rows[["split[0]_ms", "split[1]_ms"]].notna().all(axis=None)
    assert said[-1] == "reading telemetry"
