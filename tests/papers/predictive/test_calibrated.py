"""The calibrated twin knows what training windows show, and nothing else."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd
import pytest

from penstock.calibration import Calibration
from penstock.model.cluster import Cluster, Distances
from penstock.model.topology import Application, Distribution, ServiceTime
from penstock.papers.predictive import trial
from penstock.papers.predictive.calibrated import calibrate, calibrated_twin, summarise_visits, traced_hops
from penstock.papers.predictive.models import observed_loads
from penstock.papers.predictive.settings import DELAY_VARIATION, SOME, PlacedTopology, loads_in_turn, trial_cases
from penstock.papers.predictive.visits import Site, Visit
from tests.calibration import observed as without_spark
from tests.papers.predictive.test_predictive import tiny

TRAINING = 12


@pytest.fixture(scope="module")
def setting() -> PlacedTopology:
    return tiny()


@pytest.fixture(scope="module")
def visits(setting: PlacedTopology) -> list[Visit]:
    sites = {load: Site(setting, load, 400) for load in set(loads_in_turn(TRAINING))}
    rng = np.random.default_rng(5)
    return [sites[load].visit(sites[load].draw(SOME, rng), turn) for turn, load in enumerate(loads_in_turn(TRAINING))]


@pytest.fixture(scope="module")
def found(setting: PlacedTopology, visits: list[Visit]) -> Calibration:
    return calibrate(setting.application, setting.cluster, visits)


@pytest.mark.slow
def test_costs_are_the_true_ones_within_a_few_percent(setting: PlacedTopology, found: Calibration) -> None:
    for true, one in zip(setting.application.components, found.application.components, strict=True):
        assert one.cpu == pytest.approx(true.cpu, rel=0.05), true.name
    for stream, seen in zip(setting.application.streams, found.application.streams, strict=True):
        assert seen.selectivity == pytest.approx(stream.selectivity, rel=0.01), stream.label
        assert seen.tuple_bytes == pytest.approx(stream.tuple_bytes, abs=0.5), stream.label  # recorded as whole bytes
    assert found.application["split"].service.cv == pytest.approx(0.375, rel=0.2)  # longer where cores are shared
    assert found.application["database"].service.distribution is Distribution.EXPONENTIAL


def test_delays_and_their_noise_are_the_true_ones_within_a_few_percent(
    setting: PlacedTopology, found: Calibration
) -> None:
    true, one = setting.cluster.distances, found.cluster.distances
    assert one.other_host_ms == pytest.approx(true.other_host_ms, rel=0.03)
    assert one.same_process_ms == pytest.approx(true.same_process_ms, rel=0.01)
    assert found.costs.delay_variation == pytest.approx(DELAY_VARIATION, rel=0.1)
    assert found.cluster.machines == setting.cluster.machines


def test_predicts_a_placement_nearly_as_the_truth_runs_it(setting: PlacedTopology, found: Calibration) -> None:
    site = Site(setting, 0.45, 400)
    loads = observed_loads(site, site.following(setting.default, 3, 3))
    twin = calibrated_twin(site, found, loads)
    assert twin.application.rate_tps["source"] == pytest.approx(0.45 * setting.maximum_tps, rel=0.1)
    assert twin.application.rate_tps != site.application.rate_tps  # what was seen, not what was set
    slots = site.draw(SOME, np.random.default_rng(8))
    times = [site.tables.longest(site.tables.measured(site.span(slots, 4, 4.0, twin=one))) for one in (site.twin, twin)]
    assert times[1] == pytest.approx(times[0], rel=0.05)


def other(application: Application) -> Application:
    """Return an application that declares other costs and rates than it has."""
    service = ServiceTime(distribution=Distribution.LOGNORMAL, cv=3.0)
    return msgspec.structs.replace(
        application,
        components=tuple(
            msgspec.structs.replace(one, cpu=3.0 * one.cpu, service=service) for one in application.components
        ),
        streams=tuple(msgspec.structs.replace(one, selectivity=2.0, tuple_bytes=7.0) for one in application.streams),
        rate_tps={source.name: 1.0 for source in application.sources},
    )


def test_nothing_of_what_is_declared_gets_in(setting: PlacedTopology, visits: list[Visit], found: Calibration) -> None:
    far = msgspec.structs.replace(setting.cluster, distances=Distances(other_host_ms=50.0))
    again = calibrate(other(setting.application), far, visits)
    assert again.application == found.application
    assert again.cluster == found.cluster
    assert again.costs == found.costs


@pytest.mark.slow
def test_what_is_kept_apart_does_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Calibration] = []

    def kept(application: Application, cluster: Cluster, visits: Sequence[Visit]) -> Calibration:
        made.append(calibrate(application, cluster, visits))
        return made[-1]

    monkeypatch.setattr(trial, "setting", lambda _: tiny())
    monkeypatch.setattr(trial, "calibrate", kept)
    monkeypatch.setattr(trial, "_decided", lambda *_: [])
    (case,) = trial_cases("word-count", True)
    rows = [pd.DataFrame(trial.run_trial({**case, "tuples": 30, "apart": apart})) for apart in (1, 2)]
    judged = [one[one["scheme"] == trial.CALIBRATED]["value"].to_numpy() for one in rows]
    assert not np.array_equal(judged[0], judged[1])
    assert made[0] == made[1]


def test_visits_are_summed_up_as_the_telemetry_of_a_run_is(setting: PlacedTopology) -> None:
    site = Site(setting, 0.3, 1140)
    assert site.window_s == pytest.approx(2.0)  # records of tasks are of whole seconds
    visit = site.visit(setting.default, 1)
    found = summarise_visits(site.instance, [visit], traced_hops(site.instance, [visit]))
    expected = without_spark.observed(visit.records.to_pandas(), settle_s=1.0)
    assert found.seconds == pytest.approx(expected.seconds)
    for name in ("tasks", "workers", "services", "streams", "trees"):
        ours, theirs = (_sorted(getattr(one, name)) for one in (found, expected))
        pd.testing.assert_frame_equal(ours, theirs, check_dtype=False, rtol=1e-9, atol=1e-12)


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    named = table.assign(worker=table["worker"].str.partition("/")[0]) if "worker" in table else table
    columns = sorted(named.columns)
    texts = [name for name in columns if named[name].dtype == object]
    filled = named[columns].assign(**{name: named[name].fillna("").astype(str) for name in texts})
    return filled.sort_values(texts).reset_index(drop=True)


def test_following_tuples_changes_nothing(setting: PlacedTopology) -> None:
    site = Site(setting, 0.6, 100)
    plain, visit = site.window(setting.default, 2), site.visit(setting.default, 2)
    assert np.array_equal(plain.tasks, visit.window.tasks)
    assert np.array_equal(plain.edges, visit.window.edges)
    assert np.array_equal(plain.span.busy_s, visit.window.span.busy_s)
