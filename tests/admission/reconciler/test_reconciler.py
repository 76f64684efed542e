from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.admission import Admitted, fail, release, replan, restore, set_capacity
from penstock.admission.reconciler.launch import Launch
from penstock.admission.reconciler.reconciler import BookReconciler
from penstock.admission.reconciler.state import PathPhase, read_state
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link
from penstock.model.errors import PenstockError
from penstock.model.limits import Limits
from tests.admission.reconciler.fakes import Bench, FakeRun, admitted, checkpointed, flow, two_ways

ALPHA, BETA = flow("alpha"), flow("beta")
EMPTY = Book(cluster=two_ways())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, ALPHA, BETA)


def two_paths(name: str = "alpha", book: Book = EMPTY) -> Book:
    flows = {"alpha": ALPHA, "beta": BETA}
    return admitted(book, flows[name].application, availability=0.98)


def test_starts_a_run_for_every_path_of_what_is_admitted_on_the_part_that_it_uses(bench: Bench) -> None:
    bench.save(EMPTY)
    bench.settle()
    assert bench.runs == []
    book = bench.save(two_paths())
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running", "alpha/p1": "running"}
    used = [{machine.name for machine in run.launch.cluster.machines} for run in bench.runs]
    assert sorted(map(sorted, used)) == [["dst", "src", "w1"], ["dst", "src", "w2"]]
    rates = [path.rate_tps for path in book["alpha"].paths]
    assert [sum(run.limits.values()) for run in bench.runs] == pytest.approx(rates)
    assert bench.log("alpha").weights == pytest.approx(dict(zip(("p0", "p1"), rates, strict=True)))
    bench.clock.advance(1.0)
    bench.settle()
    kept = read_state(bench.book)
    assert kept is not None
    assert kept.version == book.version
    assert [path.emitted_tps for path in kept.paths] == pytest.approx(rates)
    assert {path.run for path in kept.paths} == {str(run.folder) for run in bench.runs}


def test_changes_limits_without_a_restart_when_applications_change(bench: Bench) -> None:
    alone = bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()
    both = bench.save(admitted(alone, BETA.application, paths=1, priority=3.0))
    assert both["alpha"].rate_tps != pytest.approx(alone["alpha"].rate_tps) or both["beta"].rate_tps > 0
    bench.settle()
    shared = bench.save(admitted(both, flow("gamma").application, paths=1))
    bench.flows["gamma"] = flow("gamma")
    bench.settle()
    left = bench.save(release(shared, "beta"))
    bench.settle()
    alpha = bench.runs[0]
    assert alpha.calls == []
    assert not alpha.wait(0)
    assert sum(alpha.limits.values()) == pytest.approx(left["alpha"].rate_tps)
    assert len(alpha.limited) >= 1
    assert len(bench.runs) == 3


def test_drains_what_is_released_and_stops_what_does_not_end_in_time(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    bench.save(release(book, "alpha"))
    bench.settle()
    assert [run.calls for run in bench.runs] == [["drain"], ["drain"]]
    assert bench.reconciler.idle
    assert bench.phases() == {}
    assert any("released" in text for text in bench.reported)


def test_stops_a_run_that_does_not_drain(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ALPHA)
    book = bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()
    run = bench.runs[0]
    run.drain = lambda timeout=None: run.calls.append("drain")  # type: ignore[method-assign]
    bench.save(release(book, "alpha"))
    bench.settle()
    assert run.calls == ["drain", "stop"]
    assert bench.reconciler.idle


def test_returns_tuples_of_a_failed_path_only_after_its_run_has_ended(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    log = bench.log("alpha")
    log.take("p0/0", 100, 0)
    log.take("p1/0", 50, 0)
    log.take("p0/0", 100, 1)
    checkpointed(bench.runs[0], 130, {"done": 1, "within": 30, "readers": {"-1": (180, None)}})
    machine = next(name for name in ("w1", "w2") if name in book["alpha"].paths[0].elements)
    after = bench.save(fail(book, machine).book)
    bench.reconciler.step()
    log.look()
    assert bench.phases()["alpha/p0"] == "stopping"
    assert log.given_up == set()
    assert sum(bench.runs[1].limits.values()) == pytest.approx(after["alpha"].paths[1].rate_tps)
    bench.settle()
    log.look()
    assert bench.runs[0].calls == ["stop"]
    assert log.given_up == {"p0"}
    assert [returned.spans for returned in log.returns] == [[(180, 250)]]
    assert log.weights.keys() == {"p1"}
    assert bench.phases() == {"alpha/p0": "down", "alpha/p1": "running"}
    assert bench.runs[1].calls == []
    assert any("returned 70 tuples" in text for text in bench.reported)
    taken = log.take("p1/0", 1000, 1)
    assert taken is not None
    assert (taken.start, taken.stop) == (180, 250)


def test_starts_a_restored_path_under_another_name(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    failed = bench.save(fail(book, "w1").book)
    bench.settle()
    bench.save(restore(failed, "w1").book)
    bench.settle()
    down = next(number for number, path in enumerate(book["alpha"].paths) if "w1" in path.elements)
    assert bench.phases() == {f"alpha/p{down}.2": "running", f"alpha/p{1 - down}": "running"}
    assert len(bench.runs) == 3
    assert bench.log("alpha").weights.keys() == {f"p{down}.2", f"p{1 - down}"}


def test_gives_up_a_run_that_fails_and_starts_it_again_after_a_rest(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    bench.log("alpha").take("p0/0", 10, 0)
    bench.runs[0].end("worker w1 was lost")
    bench.settle()
    assert bench.phases()["alpha/p0"] == "backoff"
    assert len(bench.runs) == 2
    assert bench.log("alpha").given_up == {"p0"}
    assert bench.log("alpha").weights.keys() == {"p1"}
    assert any("worker w1 was lost" in text for text in bench.reported)
    assert read_state(bench.book).version == book.version  # type: ignore[union-attr]
    bench.clock.advance(5.0)
    bench.settle()
    assert bench.phases() == {"alpha/p0.2": "running", "alpha/p1": "running"}
    assert len(bench.runs) == 3


def test_rests_longer_each_time_that_a_run_fails_soon_again(bench: Bench) -> None:
    bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()
    for rest in (5.0, 10.0, 20.0):
        bench.runs[-1].end("it failed")
        bench.settle()
        bench.clock.advance(rest - 0.5)
        bench.settle()
        assert bench.reconciler.state().paths[0].phase is PathPhase.BACKOFF
        bench.clock.advance(1.0)
        bench.settle()
        assert bench.reconciler.state().paths[0].phase is PathPhase.RUNNING


def test_does_not_start_a_path_that_failed_by_itself_while_its_machine_is_marked_failed(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    path = next(number for number, each in enumerate(book["alpha"].paths) if "w1" in each.elements)
    bench.runs[path].end("its machine has failed")
    bench.settle()
    bench.save(fail(book, "w1").book)
    bench.clock.advance(100.0)
    bench.settle()
    assert bench.phases()[f"alpha/p{path}"] == "down"
    assert len(bench.runs) == 2


def test_reports_an_unreadable_book_and_waits_for_it(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    whole = bench.book.read_bytes()
    bench.book.write_bytes(whole[:100])
    bench.settle()
    bench.settle()
    warnings = [text for text in bench.reported if text.startswith("warning")]
    assert len(warnings) == 1
    assert "continue" in warnings[0]
    assert all(run.calls == [] for run in bench.runs)
    assert bench.reconciler.state().problem
    bench.book.unlink()
    bench.settle()
    assert all(not run.wait(0) for run in bench.runs)
    bench.book.write_bytes(whole)
    bench.save(release(book, "alpha"))
    bench.settle()
    assert bench.reconciler.idle
    assert not bench.reconciler.state().problem


def test_skips_an_application_that_cannot_be_run_and_reports_it_once(bench: Bench) -> None:
    book = bench.save(admitted(EMPTY, flow("unknown").application, paths=1))
    bench.settle()
    bench.save(admitted(book, ALPHA.application, paths=1))
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running"}
    assert sum("unknown: cannot be run" in text for text in bench.reported) == 1


def test_refuses_a_dataflow_that_differs_from_the_admitted_one(bench: Bench) -> None:
    bench.flows["alpha"] = flow("alpha", cpu=0.5)
    bench.save(two_paths())
    bench.settle()
    assert bench.runs == []
    assert any("differ from those admitted" in text for text in bench.reported)


def test_tries_again_when_a_run_does_not_start(bench: Bench) -> None:
    bench.refusal = "no room for 3 workers"
    bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()
    assert bench.reconciler.state().paths[0].phase is PathPhase.BACKOFF
    assert bench.reconciler.state().paths[0].note == "no room for 3 workers"
    bench.refusal = ""
    bench.clock.advance(6.0)
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running"}


def test_restarts_a_path_that_has_read_everything_only_after_tuples_were_returned(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    bench.log("alpha").take("p0/0", 10, 0)
    bench.log("alpha").take("p1/0", 10, 0)
    bench.log("alpha").end(20)
    down = next(number for number, path in enumerate(book["alpha"].paths) if "w1" in path.elements)
    checkpointed(bench.runs[1 - down], 10, None)
    bench.runs[1 - down].end()
    bench.settle()
    bench.clock.advance(100.0)
    bench.settle()
    assert bench.phases() == {f"alpha/p{1 - down}": "ended", f"alpha/p{down}": "running"}
    bench.save(fail(book, "w1").book)
    bench.settle()
    assert bench.phases() == {f"alpha/p{1 - down}.2": "running", f"alpha/p{down}": "down"}


def test_drains_a_path_released_while_it_starts(bench: Bench) -> None:
    book = bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.reconciler.step()
    bench.save(release(book, "alpha"))
    bench.reconciler.step()
    assert bench.phases() == {"alpha/p0": "starting"}
    bench.settle()
    assert bench.runs[0].calls == ["drain"]
    assert bench.reconciler.idle


def test_returns_tuples_of_a_dead_reconciler_and_continues_its_sources(bench: Bench) -> None:
    bench.save(two_paths())
    bench.settle()
    bench.log("alpha").take("p0/0", 100, 0)
    bench.log("alpha").take("p1/0", 100, 0)
    checkpointed(bench.runs[0], 40, {"done": 0, "within": 40, "readers": {"-1": (40, None)}})
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    log = bench.log("alpha")
    assert log.given_up == {"p0", "p1"}
    assert [returned.spans for returned in log.returns] == [[(40, 100)], [(100, 200)]]
    assert bench.phases() == {"alpha/p0.2": "running", "alpha/p1.2": "running"}


def test_ends_everything_by_draining_or_at_once(bench: Bench) -> None:
    bench.save(two_paths("beta", two_paths()))
    bench.settle()
    bench.reconciler.end()
    bench.settle()
    assert bench.reconciler.idle
    assert all(run.calls == ["drain"] for run in bench.runs)
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert bench.phases().keys() == {"alpha/p0.2", "alpha/p1.2", "beta/p0.2", "beta/p1.2"}
    bench.reconciler.end(now=True)
    bench.settle()
    assert bench.reconciler.idle
    assert all(run.calls == ["stop"] for run in bench.runs[4:])
    kept = read_state(bench.book)
    assert kept is not None
    assert kept.paths == ()


def test_reports_a_run_that_refuses_a_limit(bench: Bench) -> None:
    book = bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()

    def refuse(limits: object) -> dict[str, float]:
        raise PenstockError("it has ended")

    bench.runs[0].limit = refuse  # type: ignore[method-assign]
    machine = "w1" if "w1" in book["alpha"].paths[0].elements else "w2"
    bench.save(set_capacity(book, machine, 0.5).book)
    bench.settle()
    assert any("it has ended" in text for text in bench.reported)


def test_drains_the_old_paths_and_starts_the_new_ones_when_an_application_is_planned_again(bench: Bench) -> None:
    book = bench.save(fail(admitted(EMPTY, ALPHA.application, paths=1, guaranteed_tps=10.0), "w1").book)
    bench.settle()
    again = replan(book, "alpha", paths=1)
    assert isinstance(again, Admitted)
    bench.save(again.book)
    bench.settle()
    assert [path.machines for path in bench.reconciler.state().paths] == [("src", "w2", "dst")]
    assert list(bench.phases().values()) == ["running"]
    moved = restore(again.book, "w1").book
    other = replan(moved, "alpha", paths=1)
    assert isinstance(other, Admitted)
    bench.save(other.book)
    bench.settle()
    assert list(bench.phases().values()) == ["running"]


def test_drains_a_path_that_gets_no_rate_and_starts_it_when_it_has_one(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    bench.log("alpha").take("p1/0", 10, 0)
    bench.save(with_rates(book, 50.0, 0.0))
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running", "alpha/p1": "standby"}
    assert bench.runs[1].calls == ["drain"]
    assert bench.log("alpha").given_up == {"p1"}
    bench.save(with_rates(book, 30.0, 20.0, version=book.version + 2))
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running", "alpha/p1.2": "running"}
    assert bench.log("alpha").weights == {"p0": 30.0, "p1.2": 20.0}
    assert bench.runs[0].calls == []


def test_reports_any_error_of_a_start_and_retries(bench: Bench) -> None:
    def broken(launch: Launch) -> FakeRun:
        raise RuntimeError("Java has gone\nat line 1")

    bench.reconciler = BookReconciler(
        bench.book, bench.flows, broken, report=bench.reported.append, clock=bench.clock, spawn=bench.work.append
    )
    bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()
    assert bench.reconciler.state().paths[0].note == "RuntimeError: Java has gone"
    assert bench.reconciler.state().paths[0].phase is PathPhase.BACKOFF


def with_rates(book: Book, *rates: float, version: int | None = None) -> Book:
    booking = book["alpha"]
    paths = tuple(replace(path, rate_tps=rate) for path, rate in zip(booking.paths, rates, strict=True))
    return replace(book, bookings=(replace(booking, paths=paths),), version=version or book.version + 1)


def test_keeps_to_a_lower_limit_that_somebody_set_and_takes_a_higher_one_back(bench: Bench) -> None:
    alone = bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()
    (run,) = bench.runs
    booked = alone["alpha"].rate_tps

    def somebody_sets(**limits: float) -> None:
        run.limits = limits
        bench.clock.advance(1.0)
        bench.settle()  # which sees it
        bench.settle()  # and acts on it

    somebody_sets(**{"in": booked / 5})
    assert run.limited == []
    assert "by another process" in bench.reported[-1]
    assert "lower limits are kept until its run ends" in bench.reported[-1]
    narrowed = bench.save(set_capacity(alone, "src--w1", 1e-5).book)
    narrowed = bench.save(set_capacity(narrowed, "src--w2", 1e-5).book)
    bench.settle()
    assert narrowed["alpha"].rate_tps < booked / 5
    assert run.limits == pytest.approx({"in": narrowed["alpha"].rate_tps})
    bench.save(set_capacity(set_capacity(narrowed, "src--w1", 1.0).book, "src--w2", 1.0).book)
    bench.settle()
    assert run.limits == pytest.approx({"in": booked / 5})
    assert f"{booked:.4g}/s booked" in bench.reported[-1]
    somebody_sets(**{"in": booked / 2})
    assert run.limits == pytest.approx({"in": booked / 2})
    for _ in range(2):
        somebody_sets()
        assert run.limits == pytest.approx({"in": booked})
    somebody_sets(**{"in": booked * 10})
    assert run.limits == pytest.approx({"in": booked})
    assert bench.reported[-2].endswith("/s; higher limits are reset")
    somebody_sets(**{"in": booked / 5})
    somebody_sets(**{"in": booked})
    assert bench.reported[-1].endswith("/s")


def test_keeps_a_lower_limit_set_just_before_the_booked_rate_changes(bench: Bench) -> None:
    alone = bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()
    (run,) = bench.runs
    booked = alone["alpha"].rate_tps
    run.limits = {"in": booked / 5}
    slower = set_capacity(set_capacity(alone, "src--w1", 2e-4).book, "src--w2", 2e-4).book
    changed = bench.save(replace(slower, version=alone.version + 1))
    assert booked / 5 < changed["alpha"].rate_tps < 0.9 * booked
    bench.settle()
    assert run.limits == {"in": booked / 5}
    assert "lower limits are kept until its run ends" in " ".join(bench.reported)


def test_a_run_that_did_not_take_a_limit_is_not_taken_to_be_limited_by_somebody(bench: Bench) -> None:
    alone = bench.save(admitted(EMPTY, ALPHA.application, paths=1))
    bench.settle()
    (run,) = bench.runs

    def deaf(limits: Limits) -> dict[str, float]:
        raise PenstockError("it does not hear")

    taken, run.limit = run.limit, deaf  # type: ignore[method-assign]
    bench.save(admitted(alone, BETA.application, paths=1))
    bench.settle()
    bench.clock.advance(1.0)
    bench.settle()
    run.limit = taken  # type: ignore[method-assign]
    assert not any("by another process" in text for text in bench.reported)
    bench.save(alone)
    bench.settle()
    assert run.limits == pytest.approx({"in": alone["alpha"].rate_tps})


def test_a_switch_that_fails_stops_the_paths_over_it_and_starts_them_when_it_returns(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ALPHA)
    book = bench.save(admitted(Book(cluster=over_switches()), ALPHA.application, availability=0.98))
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running", "alpha/p1": "running"}
    (used,) = [name for name in ("s1", "s2") if any(name in link for link in book["alpha"].paths[0].load)]
    broken = bench.save(fail(book, used).book)
    bench.settle()
    assert bench.phases() == {"alpha/p0": "down", "alpha/p1": "running"}
    assert f"alpha: path p0 uses {used}, which has failed: the path is given up" in bench.reported
    bench.save(restore(broken, used).book)
    bench.settle()
    assert bench.phases() == {"alpha/p0.2": "running", "alpha/p1": "running"}


def over_switches() -> Cluster:
    """Return the network of two routes with a switch between the source's machine and either of the two."""
    plain = two_ways()
    ends = [("src", "s1"), ("s1", "w1"), ("src", "s2"), ("s2", "w2"), ("w1", "dst"), ("w2", "dst")]
    links = tuple(Link(source=a, target=b, bandwidth_mbps=100.0) for a, b in ends)
    return replace(plain, switches=("s1", "s2"), links=links)


def test_reports_a_broken_promise_once_and_its_recovery(bench: Bench) -> None:
    book = bench.save(two_paths())
    bench.settle()
    crowd = replace(flow("gamma").application, guaranteed_tps=book["alpha"].paths[0].rate_tps)
    crowded = bench.save(admitted(book, crowd, paths=1))
    bench.settle()
    bench.settle()
    lines = [text for text in bench.reported if "requested availability" in text]
    assert len(lines) == 1
    assert lines[0].startswith("warning: alpha requested availability 0.98 and has 0.")
    assert lines[0].endswith("penstock cluster admit alpha --again searches for other paths")
    bench.save(release(crowded, "gamma"))
    bench.settle()
    assert "alpha: its promise is kept again" in bench.reported
