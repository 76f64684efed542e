from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.api.sources.pace import ArrivalProcess
from penstock.model.errors import InvalidInput, UnknownName
from penstock.workloads.arrivals import (
    ARRIVALS,
    Constant,
    Diurnal,
    OnOff,
    Poisson,
    Replay,
    SelfSimilar,
    StepChange,
    arrivals,
    fractional_noise,
)

SLOTS = 20_000
STEADY = [
    Constant(rate=37.3, slot=0.1),
    Poisson(rate=37.3, slot=0.1),
    OnOff(rate=37.3, slot=0.1, burst=1.0),
    SelfSimilar(rate=37.3, slot=0.1, hurst=0.6),
    Diurnal(rate=37.3, slot=0.1, period=100.0),
]


def dispersion(counts: NDArray[np.int64]) -> float:
    return float(counts.var() / counts.mean())


def hurst(counts: NDArray[np.int64]) -> float:
    """Estimate the Hurst parameter from how the variance of means falls with the number of slots averaged."""
    sizes = np.unique(np.logspace(0.7, np.log10(len(counts) / 30), 12).astype(int))
    variance = [counts[: len(counts) // m * m].reshape(-1, m).mean(axis=1).var() for m in sizes]
    return float(1 + np.polyfit(np.log(sizes), np.log(variance), 1)[0] / 2)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("process", STEADY, ids=lambda process: type(process).__name__)
def test_mean_is_the_rate_times_the_slot(process: ArrivalProcess, seed: int) -> None:
    counts = process.counts(SLOTS, np.random.default_rng(seed))
    assert counts.shape == (SLOTS,)
    assert counts.dtype == np.int64
    assert counts.min() >= 0
    assert counts.mean() == pytest.approx(3.73, rel=0.08)


@pytest.mark.parametrize("process", STEADY, ids=lambda process: type(process).__name__)
def test_equal_seeds_give_equal_counts(process: ArrivalProcess) -> None:
    first, again, other = (process.counts(500, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert first.tolist() == again.tolist()
    assert isinstance(process, Constant) or first.tolist() != other.tolist()


def test_constant_loses_no_fraction() -> None:
    counts = Constant(rate=2.5).counts(1000, np.random.default_rng(0))
    assert set(counts.tolist()) == {2, 3}
    assert counts.sum() == 2500


@pytest.mark.parametrize("seed", range(3))
def test_poisson_variance_is_its_mean(seed: int) -> None:
    counts = Poisson(rate=12.0).counts(SLOTS, np.random.default_rng(seed))
    assert dispersion(counts) == pytest.approx(1.0, abs=0.05)
    assert hurst(counts) == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("seed", range(3))
def test_bursts_take_their_share_of_the_time(seed: int) -> None:
    """Within bursts of 50 slots nearly every slot has tuples, between them none has."""
    counts = OnOff(rate=10.0, on=0.2, burst=50.0).counts(SLOTS, np.random.default_rng(seed))
    assert (counts > 0).mean() == pytest.approx(0.2, abs=0.06)
    assert counts[counts > 0].mean() == pytest.approx(50.0, rel=0.1)
    assert dispersion(counts) > 20


def test_bursts_that_never_end_are_poisson() -> None:
    counts = OnOff(rate=10.0, on=1.0).counts(SLOTS, np.random.default_rng(1))
    assert dispersion(counts) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("wanted", [0.6, 0.75, 0.9])
def test_self_similar_counts_have_the_hurst_parameter(wanted: float) -> None:
    process = SelfSimilar(rate=200.0, hurst=wanted)
    estimates = [hurst(process.counts(2**15, np.random.default_rng(seed))) for seed in range(8)]
    assert np.mean(estimates) == pytest.approx(wanted, abs=0.08)


def test_fractional_noise_has_its_covariance() -> None:
    """γ(1) = 2^(2H-1) - 1 and γ(2) = (3^2H - 2·2^2H + 1) / 2, over many short draws as long ones vary slowly."""
    rng = np.random.default_rng(5)
    drawn = np.array([fractional_noise(8, 0.8, rng) for _ in range(20_000)])
    covariance = drawn.T @ drawn / len(drawn)
    assert np.diag(covariance) == pytest.approx(np.ones(8), abs=0.05)
    assert np.diag(covariance, 1) == pytest.approx(np.full(7, 2**0.6 - 1), abs=0.05)
    assert np.diag(covariance, 2) == pytest.approx(np.full(6, (3**1.6 - 2 * 2**1.6 + 1) / 2), abs=0.05)


def test_diurnal_rate_rises_and_falls() -> None:
    counts = Diurnal(rate=100.0, amplitude=0.8, period=1000.0).counts(1000, np.random.default_rng(2))
    assert counts[200:300].mean() == pytest.approx(180.0, rel=0.05)
    assert counts[700:800].mean() == pytest.approx(20.0, rel=0.15)


def test_rate_steps_up_at_its_time() -> None:
    counts = StepChange(rate=100.0, factor=1.5, at=500.0).counts(1000, np.random.default_rng(2))
    assert counts[:500].mean() == pytest.approx(100.0, rel=0.02)
    assert counts[500:].mean() == pytest.approx(150.0, rel=0.02)


def test_rate_may_step_to_zero() -> None:
    counts = StepChange(rate=100.0, factor=0.0, at=2.5).counts(5, np.random.default_rng(2))
    assert (counts[:3] > 0).all()
    assert counts[3:].tolist() == [0, 0]


@pytest.mark.parametrize("name", [name for name in ARRIVALS if name != "replay"])
def test_every_process_is_found_by_name(name: str) -> None:
    found = arrivals(f"{name}:rate=100,slot=0.5")
    assert isinstance(found, ArrivalProcess)
    assert found.counts(10, np.random.default_rng(0)).shape == (10,)
    assert found.counts(0, np.random.default_rng(0)).shape == (0,)


def test_replay_is_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("1\n2\n3\n")
    assert arrivals(f"replay:path={path}").counts(3, np.random.default_rng(0)).tolist() == [1, 2, 3]
    assert arrivals(f"replay:path={path}") == Replay(path=str(path))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("poisson", "arrivals.poisson.rate: missing; add rate=VALUE"),
        ("poisson:rate=-1", "arrivals.poisson.rate: expected a number > 0, got '-1'"),
        ("self-similar:rate=1,hurst=0.5", "arrivals.self-similar.hurst: expected a number > 0.5, got '0.5'"),
        ("on-off:rate=1,on=0", "arrivals.on-off.on: expected a number > 0, got '0'"),
    ],
)
def test_rejects_a_wrong_setting(spec: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        arrivals(spec)
    assert str(refused.value) == message


def test_a_trace_may_be_named_alone(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("3\n5\n")
    assert arrivals(str(trace)) == Replay(path=str(trace))
    assert arrivals(f"{trace}:rate=8,speed=2") == Replay(path=str(trace), rate=8.0, speed=2.0)
    with pytest.raises(UnknownName, match=r"arrivals: no file and no process is named 'trcae.csv'; there are constant"):
        arrivals("trcae.csv")


def test_an_unknown_name_is_rejected_with_the_choices() -> None:
    with pytest.raises(UnknownName, match="arrivals: unknown name 'bursty'; there are constant, diurnal"):
        arrivals("bursty:rate=1")
