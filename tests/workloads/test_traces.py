from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import FileProblem, PenstockError
from penstock.workloads.arrivals import Replay
from penstock.workloads.traces import read_trace
from tests.shared_data import SHARED, needs_shared

COUNTS = "4\n0\n2\n6\n"
VALUES = "timestamp,value\n2015-03-08 01:55:00,3\n2015-03-08 02:00:00,5\n2015-03-08 02:05:00,0\n"
REQUESTS = (
    "TIMESTAMP,Tokens\r\n2023-11-16 18:15:46.6805900,374\r\n2023-11-16 18:15:47.5,396\r\n2023-11-16 18:15:50,1\r\n"
)
PACKETS = "    0.500000  1090 \n    0.700000   174 \n    2.000000   64 \n    3.500000   64 \n"
RNG = np.random.default_rng(0)  # replays draw nothing


def written(folder: Path, text: str) -> str:
    path = folder / "trace"
    path.write_bytes(text.encode())
    return str(path)


def test_reads_counts_by_line(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, COUNTS), line_seconds=5.0)
    assert (trace.total, trace.seconds, trace.rate) == (12, 20, 0.6)
    assert trace.before(np.array([0.0, 2.5, 5.0, 15.0, 20.0])).tolist() == [0, 2, 4, 6, 12]


def test_reads_values_by_time(tmp_path: Path) -> None:
    """Many countries changed their clocks at that hour; the trace does not."""
    trace = read_trace(written(tmp_path, VALUES))
    assert (trace.total, trace.seconds) == (8, 900)


def test_reads_requests_by_time(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, REQUESTS))
    assert trace.total == 3
    assert trace.seconds == pytest.approx(3.31941 * 1.5)
    assert trace.before(np.array([0.0, 0.5, 1.0, 3.4])).tolist() == [0, 1, 2, 3]


def test_reads_packets_by_time(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, PACKETS))
    assert (trace.total, trace.seconds) == (4, 4.0)
    assert trace.before(np.array([0.1, 1.0, 1.5, 1.6])).tolist() == [1, 2, 2, 3]


def test_replays_slot_by_slot(tmp_path: Path) -> None:
    assert Replay(path=written(tmp_path, COUNTS)).counts(4, RNG).tolist() == [4, 0, 2, 6]
    assert Replay(path=written(tmp_path, PACKETS)).counts(4, RNG).tolist() == [2, 1, 0, 1]


def test_starts_again_at_the_end(tmp_path: Path) -> None:
    assert Replay(path=written(tmp_path, COUNTS)).counts(6, RNG).tolist() == [4, 0, 2, 6, 4, 0]


@pytest.mark.parametrize("slot", [0.3, 1.0, 1.7, 20.0])
@pytest.mark.parametrize("text", [COUNTS, VALUES, REQUESTS, PACKETS], ids=["counts", "values", "requests", "packets"])
def test_keeps_the_total_whatever_the_slot(tmp_path: Path, text: str, slot: float) -> None:
    replay = Replay(path=written(tmp_path, text), slot=slot, speed=7.0)
    laps = 9
    slots = int(np.ceil(laps * replay.trace.seconds / (slot * replay.speed)))
    counts = replay.counts(slots, RNG)
    played = slots * slot * replay.speed / replay.trace.seconds
    assert laps * replay.trace.total <= counts.sum() <= np.ceil(played) * replay.trace.total
    assert counts.min() >= 0


@pytest.mark.parametrize("rate", [0.5, 3.0, 250.0])
def test_scales_to_a_wanted_mean(tmp_path: Path, rate: float) -> None:
    replay = Replay(path=written(tmp_path, COUNTS), rate=rate, slot=2.0, speed=2.0, line_seconds=5.0)
    assert replay.counts(5000, RNG).mean() == pytest.approx(rate * 2.0, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2\nx\n4\n", "line 3: count: expected a whole number ≥ 0, got 'x'"),
        ("1\n-2\n", "line 2: count: expected a whole number ≥ 0, got '-2'"),
        ("0\n0\n", "expected arrivals, got a trace of none"),
        ("", "expected a trace of arrivals, got an empty file"),
        (VALUES.replace(",5", ",many"), "line 3: value: expected a number ≥ 0, got 'many'"),
        (VALUES.replace(",5", ",5,6"), "line 3: expected timestamp,value, got '2015-03-08 02:00:00,5,6'"),
        (VALUES.replace("02:05", "25:05"), "line 4: timestamp: expected YYYY-MM-DD hh:mm:ss, got '2015-03-08 25:05"),
        (VALUES.replace("02:05", "01:05"), "line 4: expected a later time than in the previous line"),
        ("timestamp,value\n2015-03-08 01:55:00,3\n", "expected two times or more, got 1"),
        (REQUESTS.replace("18:15:47", "18:15:45"), "line 3: expected a later time"),
        (PACKETS.replace("2.0", "0.1"), "line 3: expected a later time"),
        (PACKETS.replace("174", ""), "line 2: expected seconds and bytes, got '0.700000'"),
        ("1.0 5\n1.0 5\n", "expected times that differ, got 2 equal ones"),
    ],
)
def test_rejects_a_malformed_trace(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(FileProblem) as refused:
        Replay(path=path).counts(1, RNG)
    assert str(refused.value).startswith(f"{path}: {message}")


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    text=st.sampled_from([COUNTS, VALUES, REQUESTS, PACKETS]),
    at=st.integers(0, 130),
    length=st.integers(0, 20),
    junk=st.text(max_size=8),
)
def test_a_damaged_trace_is_read_or_rejected_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, at: int, length: int, junk: str
) -> None:
    path = tmp_path_factory.mktemp("spoilt") / "trace"
    path.write_bytes((text[:at] + junk + text[at + length :]).encode("utf-8", "surrogatepass"))
    complaint = f"{path}: none"
    try:
        read_trace(path)
    except PenstockError as refused:
        complaint = str(refused)
    assert complaint.startswith(f"{path}: ")
    assert "\n" not in complaint


@needs_shared
@pytest.mark.parametrize(
    ("name", "settings", "tuples", "mean"),
    [
        ("nasa_http_jul_5s.csv", {"line_seconds": 5.0, "slot": 5.0}, 564_645, 4.705),
        ("Twitter_volume_CRM.csv", {"slot": 300.0}, 53_261, 3.349),
        ("Twitter_volume_GOOG.csv", {"slot": 300.0}, 328_506, 20.736),
        ("Twitter_volume_IBM.csv", {"slot": 300.0}, 69_774, 4.390),
        ("Twitter_volume_PFE.csv", {"slot": 300.0}, 13_742, 0.867),
        ("AzureLLMInferenceTrace_conv.csv", {}, 19_366, 5.530),
        ("BC-pAug89-small.TL", {"slot": 0.01}, 10_000, 3.890),
    ],
)
def test_replays_the_real_traces(name: str, settings: dict[str, float], tuples: int, mean: float) -> None:
    replay = Replay(path=str(SHARED / "arrivals" / name), **settings)
    counts = replay.counts(int(replay.trace.seconds // replay.slot), RNG)
    assert replay.trace.total == tuples
    assert 0 <= tuples - counts.sum() <= counts.max()  # at most what falls in the last, incomplete slot
    assert counts.mean() == pytest.approx(mean, rel=1e-3)
    assert counts.var() > counts.mean()  # real arrivals are burstier than Poisson
