from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.autopilot.control_target import Reading
from penstock.autopilot.ledger import (
    DecisionOutcome,
    Episode,
    Ledger,
    LedgerContents,
    Line,
    Opening,
    ReadingRecord,
    Swap,
    read_ledger,
)
from penstock.model.errors import FileProblem
from tests.autopilot.fake_target import APPLICATION, CLUSTER, FakeTarget, misplaced, pilot


def decided() -> Episode:
    found = pilot(FakeTarget(misplaced)).step()
    assert found is not None
    assert found.outcome is not None
    return found


def test_what_is_written_is_read_back_equal(tmp_path: Path) -> None:
    episode = decided()
    assert episode.outcome is not None
    lines: list[Line] = [
        Opening(at=0.0, run="r", time="t", application=APPLICATION, cluster=CLUSTER),
        ReadingRecord(at=1.0, reading=Reading(at=1.0, seconds=1.0)),
        Swap(at=1.5, policy=None, shadow=True),
        episode.decision,
        episode.outcome,
    ]
    ledger = Ledger(tmp_path / "l")
    for line in lines:
        ledger.append(line)
    book = read_ledger(tmp_path / "l")
    assert list(book.lines) == lines
    (again,) = book.episodes
    assert (again.decision, again.outcome, again.verdict) == (episode.decision, episode.outcome, "kept")


@pytest.mark.parametrize("left", [1, 40, -1])
def test_reports_and_skips_an_incomplete_line(tmp_path: Path, left: int) -> None:
    path = tmp_path / "l"
    episode = decided()
    ledger = Ledger(path)
    ledger.append(episode.opening)
    ledger.append(episode.decision)
    whole = path.read_bytes()
    ledger.append(DecisionOutcome(number=1, at=9.0, verdict="kept"))
    torn = path.read_bytes()[len(whole) :].rstrip(b"\n")[:left]
    path.write_bytes(whole + torn)

    book = read_ledger(path)
    assert [one.verdict for one in book.episodes] == ["in progress"]
    assert len(book.problems) == 1
    assert "line 3 is incomplete" in book.problems[0]
    after = Ledger(path)
    assert after.next_number == 2
    after.append(DecisionOutcome(number=1, at=9.0, verdict="rolled back"))
    assert [one.verdict for one in read_ledger(path).episodes] == ["rolled back"]
    assert len(read_ledger(path).problems) == 1


def test_a_decision_without_an_outcome_is_in_progress_only_while_its_driver_lives(tmp_path: Path) -> None:
    path = tmp_path / "l"
    episode = decided()
    ledger = Ledger(path)
    for line in (episode.opening, episode.decision, replace(episode.decision, number=2)):
        ledger.append(line)
    assert [one.verdict for one in read_ledger(path).episodes] == ["unfinished", "in progress"]
    over = LedgerContents(read_ledger(path).lines, ended=True)
    assert [one.verdict for one in over.episodes] == ["unfinished", "unfinished"]


@pytest.mark.parametrize(("verdict", "left"), [("kept", False), ("stuck", True), ("unfinished", True), ("void", False)])
def test_an_unjudged_change_in_force_is_left(tmp_path: Path, verdict: str, left: bool) -> None:
    episode = decided()
    ledger = Ledger(tmp_path / "l")
    ledger.append(episode.opening)
    ledger.append(episode.decision)
    assert ledger.left is not None
    ledger.append(DecisionOutcome(number=1, at=9.0, verdict=verdict))
    assert [(one.left is not None) for one in (ledger, Ledger(tmp_path / "l"))] == [left, left]


def test_a_ledger_that_cannot_be_read_or_written_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="penstock run --autopilot or penstock autopilot set"):
        read_ledger(tmp_path / "none")
    ledger = Ledger(tmp_path / "later")
    (tmp_path / "later").mkdir()
    with pytest.raises(FileProblem, match="cannot be written, is a directory"):
        ledger.append(Swap(at=0.0, policy=None, shadow=False))
