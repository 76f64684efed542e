"""`penstock autopilot history` and `penstock autopilot explain` on the ledger of a plant whose latencies are known."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.control_target import Reading
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import LEDGER, Inputs, Ledger
from penstock.autopilot.proposal import Proposal
from penstock.cli.autopilot.decisions import in_force, stretches
from penstock.model.cluster import Cluster
from penstock.model.topology import Application
from penstock.runtime.storage.run_folder import create, load, mark_ended
from tests.autopilot.fake_target import GOOD, SEARCH, START, FakeTarget, misplaced, pilot
from tests.conftest import Ran

Penstock = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose autopilot has made one change that was kept, and then held still."""
    info = create("chain", tmp_path / "runs")
    target = FakeTarget(lambda placed: 0.1 + 0.1 * len({slot.partition("/")[0] for slot in placed.values()}))
    target.placed = {**START, "in[0]": "m1/0", "out[0]": "m1/1"}
    ledger = Ledger(info.path / LEDGER)
    Autopilot(target, AutopilotSettings(policy=SEARCH), guard=Guard(interval_s=1.0), ledger=ledger).run(100.0)
    return info.path


def test_history_lists_decisions_with_what_was_predicted_and_realised(penstock: Penstock, folder: Path) -> None:
    ran = penstock("autopilot", "history", folder)
    assert ran.code == 0, ran.err
    rows = [line.split() for line in ran.out.splitlines()]
    (first,) = [row for row in rows if row[:1] == ["1"]]
    assert first[-1] == "kept"
    assert float(first[-2].rstrip("%")) == pytest.approx(-33, abs=6)
    assert first[-3].startswith("-")
    assert "decisions, 1 kept, 0 rolled back; why: penstock autopilot explain" in ran.out
    found = json.loads(penstock("autopilot", "history", folder, "--json").out)
    assert [one["verdict"] for one in found["decisions"]][:2] == ["kept", "held"]
    assert found["decisions"][0]["decision"]["inputs"]["policy"] == SEARCH


def test_history_draws_latency_over_time(penstock: Penstock, folder: Path, tmp_path: Path) -> None:
    ran = penstock("autopilot", "history", folder, "--plot", tmp_path / "h.svg")
    assert ran.code == 0, ran.err
    assert "<svg" in (tmp_path / "h.svg").read_text()[:500]
    assert penstock("autopilot", "history", folder, "--plot", tmp_path / "h.doc").code == 2


def test_the_picture_has_a_legend(penstock: Penstock, folder: Path, tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        penstock("autopilot", "history", folder, "--plot", tmp_path / "h.svg")
    drawn = (tmp_path / "h.svg").read_text()
    for text in ("latency (ms)", "time since the run began (s)", "mean", "p99", "kept", "bound, while judged", "held"):
        assert drawn.count(f">{text}<") == 1, text


def test_latency_is_not_drawn_where_none_was_seen() -> None:
    readings = [Reading(at=at, seconds=1.0, count=9, mean_s=0.1, p99_s=0.2) for at in (1.0, 2.0, 13.0, 14.05, 15.05)]
    readings.insert(4, Reading(at=15.0, seconds=1.0))  # no tuple was completed
    readings.append(Reading(at=27.0, seconds=11.95, count=9, mean_s=0.3, p99_s=0.4))  # which covers a long decision
    found = [[reading.at for reading in stretch] for stretch in stretches(readings)]
    assert found == [[1.0, 2.0], [13.0, 14.05], [15.05], [27.0]]


def test_a_bound_is_drawn_from_when_its_change_was_in_force_and_not_while_it_was_decided() -> None:
    target = FakeTarget(misplaced)

    def propose(application: Application, cluster: Cluster, inputs: Inputs) -> Proposal:
        target.wait(11.0)
        return GOOD(application, cluster, inputs)

    loop = pilot(target, propose)
    acted, held = loop.step(), loop.step()
    assert acted is not None
    assert held is not None
    assert acted.outcome is not None
    assert in_force(acted) == pytest.approx((acted.decision.at + 11.0, acted.outcome.at))
    assert in_force(held) is None


def test_reports_a_run_without_decisions(penstock: Penstock, tmp_path: Path) -> None:
    info = create("chain", tmp_path / "runs")
    ran = penstock("autopilot", "history", info.path)
    assert ran.code == 2
    assert "penstock run --autopilot or penstock autopilot set starts an autopilot, which writes them" in ran.err


def test_history_warns_of_a_torn_line_and_shows_the_rest(penstock: Penstock, folder: Path) -> None:
    with (folder / LEDGER).open("a") as file:
        file.write('{"record": "outc')
    ran = penstock("autopilot", "history", folder)
    assert ran.code == 0
    assert "is incomplete" in ran.err
    assert "kept" in ran.out


def test_explain_shows_inputs_alternatives_and_why(penstock: Penstock, folder: Path) -> None:
    ran = penstock("autopilot", "explain", 1, "--run", folder)
    assert ran.code == 0, ran.err
    assert f"decision 1 by {SEARCH}: kept" in ran.out
    assert "in 100/s" in ran.out
    assert "to act, predicted gain" in ran.out
    assert "stay" in ran.out
    assert "★" in ran.out
    assert "recomputed, it differs" not in ran.out


def test_explain_shows_the_decision_of_another_policy(penstock: Penstock, folder: Path) -> None:
    ran = penstock("autopilot", "explain", "last", "--run", folder, "--policy", "round-robin", "--policy", "r-storm")
    assert ran.code == 0, ran.err
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines() if line.strip()}
    assert rows["round-robin"][3] == "no"
    assert "r-storm" in rows
    found = json.loads(penstock("autopilot", "explain", 1, "--run", folder, "--policy", "round-robin", "--json").out)
    assert found["reproduced"] is True
    assert found["others"][0]["inputs"]["placement"] == found["decision"]["inputs"]["placement"]


def test_explain_refuses_what_is_not_there(penstock: Penstock, folder: Path) -> None:
    ran = penstock("autopilot", "explain", 99, "--run", folder)
    assert (ran.code, ran.err) == (2, ran.err)
    assert "there is none numbered '99'; there are 1, 2" in ran.err
    assert "no policy is named 'x'" in penstock("autopilot", "explain", 1, "--run", folder, "--policy", "x").err


def test_a_decision_whose_driver_has_ended_is_not_in_progress(penstock: Penstock, folder: Path) -> None:
    lines = (folder / LEDGER).read_text().splitlines(keepends=True)
    decisions = [number for number, line in enumerate(lines) if '"record":"decision"' in line]
    (folder / LEDGER).write_text("".join(lines[: decisions[0] + 1]))
    verdict = json.loads(penstock("autopilot", "history", folder, "--json").out)["decisions"][-1]["verdict"]
    assert verdict == "in progress"  # this process, which has made the run's folder, is still there
    mark_ended(load(folder))
    verdict = json.loads(penstock("autopilot", "history", folder, "--json").out)["decisions"][-1]["verdict"]
    assert verdict == "unfinished"


def test_explain_shows_the_likely_cause_of_a_different_recomputed_decision(penstock: Penstock, folder: Path) -> None:
    text = (folder / LEDGER).read_text().replace(SEARCH, "local-search")
    (folder / LEDGER).write_text(text.replace('"gain":', '"gain":1e-3,"was":', 1).replace('"cost_s":', '"cost_s":9', 1))
    ran = penstock("autopilot", "explain", 1, "--run", folder)
    assert ran.code == 0, ran.err
    assert "recomputed, it differs" in ran.out
    assert "likely cause: local-search searches for 0.5 s" in ran.out
