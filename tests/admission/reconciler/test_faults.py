"""Faults around a reconciler: files, users' code, runs that others end or that do not end."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.admission import BookFile, fail, release, set_capacity
from penstock.admission.reconciler.service import _scaler
from penstock.admission.reconciler.state import PathPhase, read_state, state_file
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sources.generated import Generated
from penstock.model.book import Book, Booking
from penstock.model.errors import FileProblem, InvalidInput, PenstockError
from penstock.runtime.emulation import SharedCpu, SharedLink
from penstock.runtime.storage.run_folder import RunLock
from penstock.startup.resume import find_resumable
from tests.admission.reconciler.fakes import Bench, FakeRun, admitted, checkpointed, flow, two_ways

ALPHA, BETA = flow("alpha"), flow("beta")
EMPTY = Book(cluster=two_ways())
HALF = {"done": 0, "within": 40, "readers": {"-1": (40, None)}}  # 40 tuples of the first block


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, ALPHA, BETA)


def one_path(book: Book = EMPTY, of: Dataflow = ALPHA) -> Book:
    return admitted(book, of.application, paths=1)


def manifest(run: FakeRun) -> Path:
    return next(run.folder.glob("checkpoints/*/manifest.json"))


def spans(bench: Bench) -> list[list[tuple[int, int]]]:
    return [returned.spans for returned in bench.log("alpha").returns]


# Which run a path was


def test_the_next_reconciler_returns_nothing_from_a_damaged_checkpoint(bench: Bench) -> None:
    bench.save(one_path())
    bench.settle()
    bench.log("alpha").take("p0/0", 100, 0)
    checkpointed(bench.runs[0], 40, HALF)
    whole = manifest(bench.runs[0]).read_bytes()
    manifest(bench.runs[0]).write_text("{}")
    bench.runs[0].end("it failed")
    bench.settle()
    bench.clock.advance(6.0)
    bench.settle()
    assert bench.phases() == {"alpha/p0.2": "running"}
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert any("path p0 of the previous reconciler returns no tuples" in text for text in bench.reported)
    assert spans(bench) == []
    manifest(bench.runs[0]).write_bytes(whole)
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert spans(bench) == [[(40, 100)]]


def test_published_tuples_are_not_returned_by_the_next_reconciler(bench: Bench) -> None:
    bench.save(one_path())
    bench.reconciler.step()
    bench.work.pop()()
    bench.log("alpha").take("p0/0", 100, 0)
    checkpointed(bench.runs[0], 40, HALF)
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert spans(bench) == [[(40, 100)]]
    assert bench.phases() == {"alpha/p0.2": "running"}


def test_a_started_path_without_tuples_is_given_up(bench: Bench) -> None:
    bench.save(one_path())
    bench.reconciler.step()
    bench.work.pop()()
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert bench.log("alpha").given_up == {"p0"}
    with pytest.raises(InvalidInput, match="was abandoned"):
        bench.log("alpha").take("p0/0", 100, 0)


def test_starts_nothing_before_the_split_logs_are_registered_on_disk(bench: Bench) -> None:
    state_file(bench.book).mkdir()
    bench.save(one_path())
    bench.settle()
    assert bench.runs == []
    assert sum("cannot be written" in text for text in bench.reported) == 1
    state_file(bench.book).rmdir()
    bench.clock.advance(1.0)
    bench.settle()
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running"}


def test_returns_the_tuples_of_a_failed_start(bench: Bench) -> None:
    def taken_and_lost(run: FakeRun) -> None:
        bench.log("alpha").take("p0/0", 100, 0)
        checkpointed(run, 40, HALF)
        raise RuntimeError("Java has gone")

    bench.broken = taken_and_lost
    bench.save(one_path())
    bench.settle()
    assert spans(bench) == [[(40, 100)]]
    assert any("returned 60 tuples" in text for text in bench.reported)
    bench.broken = lambda _: None
    bench.clock.advance(6.0)
    bench.settle()
    assert bench.phases() == {"alpha/p0.2": "running"}


def test_returns_nothing_of_a_failed_start_whose_run_continues(bench: Bench) -> None:
    held: list[RunLock] = []

    def going_on(run: FakeRun) -> None:
        held.append(RunLock(run.info))
        bench.log("alpha").take("p0/0", 100, 0)
        raise RuntimeError("Java has gone")

    bench.broken = going_on
    bench.save(one_path())
    bench.settle()
    assert spans(bench) == []
    assert any("returns no tuples" in text and "is being run by" in text for text in bench.reported)
    held[0].release()
    bench.broken = lambda _: None
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert spans(bench) == [[(0, 100)]]


def test_a_run_that_was_given_up_cannot_be_resumed(bench: Bench) -> None:
    bench.save(one_path())
    bench.settle()
    bench.runs[0].end("it failed")
    assert find_resumable(bench.runs[0].folder)
    bench.settle()
    with pytest.raises(InvalidInput, match=r"resume: run alpha-.* given up, its tuples are with"):
        find_resumable(bench.runs[0].folder)


# Where the split logs are


def test_sources_of_a_skipped_application_continue_later(bench: Bench) -> None:
    bench.save(one_path())
    bench.settle()
    bench.log("alpha").take("p0/0", 100, 0)
    bench.reconciler = bench.new_reconciler(flows={"beta": BETA})
    bench.settle()
    assert any("alpha: cannot be run" in text for text in bench.reported)
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert bench.phases() == {"alpha/p0.2": "running"}
    assert bench.log("alpha").next == 100


def test_an_application_released_while_skipped_starts_from_the_beginning(bench: Bench) -> None:
    book = bench.save(one_path())
    bench.settle()
    bench.reconciler = bench.new_reconciler(flows={"beta": BETA})
    bench.settle()
    bench.save(release(book, "alpha"))
    bench.settle()
    state = read_state(bench.book)
    assert state is not None
    assert state.sources == ()


def test_two_books_in_a_folder_have_each_their_own_sources(bench: Bench) -> None:
    bench.save(one_path())
    bench.settle()
    bench.log("alpha").take("p0/0", 100, 0)
    other = bench.folder / "other.json"
    BookFile(other).save(one_path(of=BETA), None)
    first, bench.reconciler = bench.reconciler, bench.new_reconciler(other)
    bench.settle()
    assert bench.phases() == {"beta/p0": "running"}
    assert (bench.folder / "other.operator" / "beta-1" / "in.jsonl").exists()
    bench.reconciler = bench.new_reconciler()
    bench.settle()
    assert bench.phases() == {"alpha/p0.2": "running"}
    assert bench.log("alpha").next == 100
    assert first.idle is False


def test_explains_the_effect_of_removing_a_damaged_state(bench: Bench) -> None:
    state_file(bench.book).write_text("{")
    with pytest.raises(FileProblem, match=r"book\.operator\.json: .* restore a backup: without it all sources"):
        bench.new_reconciler()


# Runs that others end, and runs that do not end


def test_a_run_that_was_ended_from_outside_is_started_again_while_there_is_more_to_read(bench: Bench) -> None:
    bench.save(one_path())
    bench.settle()
    bench.log("alpha").take("p0/0", 100, 0)
    bench.runs[0].end()
    bench.settle()
    assert bench.phases() == {"alpha/p0": "backoff"}
    assert any("was ended by another process" in text and "100 tuples" in text for text in bench.reported)
    bench.clock.advance(6.0)
    bench.settle()
    assert bench.phases() == {"alpha/p0.2": "running"}


def test_a_path_has_not_come_to_its_end_while_what_others_gave_back_waits(bench: Bench) -> None:
    bench.save(admitted(EMPTY, ALPHA.application, availability=0.98))
    bench.settle()
    bench.log("alpha").take("p0/0", 10, 0)
    bench.log("alpha").take("p1/0", 10, 0)
    bench.log("alpha").end(20)
    checkpointed(bench.runs[1], 10, None)
    bench.runs[0].end("it failed")
    bench.runs[1].end()
    bench.settle()
    assert bench.phases() == {"alpha/p0": "backoff", "alpha/p1": "backoff"}


def test_a_run_that_does_not_end_is_kept_hold_of_and_stopped_again(bench: Bench) -> None:
    book = bench.save(one_path())
    bench.settle()
    run = bench.runs[0]
    bench.log("alpha").take("p0/0", 100, 0)
    run.may_end.clear()
    machine = "w1" if "w1" in book["alpha"].paths[0].elements else "w2"
    bench.save(fail(book, machine).book)
    bench.settle()
    assert bench.phases() == {"alpha/p0": "stuck"}
    assert spans(bench) == []
    bench.save(book_again(bench, book))
    bench.settle()
    assert len(bench.runs) == 1, "nothing is started beside it"
    run.may_end.set()
    assert run.wait(10.0)
    bench.settle()
    assert spans(bench) == [[(0, 100)]]
    assert bench.phases() == {"alpha/p0.2": "running"}


def test_a_run_that_refuses_to_be_drained_and_stopped_is_stuck(bench: Bench) -> None:
    def refuse(*_: object) -> None:
        raise PenstockError("its socket was removed")

    book = bench.save(one_path())
    bench.settle()
    run = bench.runs[0]
    run.drain = run.stop = refuse  # type: ignore[method-assign,assignment]
    bench.save(release(book, "alpha"))
    bench.settle()
    assert bench.phases() == {"alpha/p0": "stuck"}
    assert bench.reconciler.state().paths[0].note == "its socket was removed"
    run.end()
    bench.settle()
    assert bench.reconciler.idle


def test_a_status_that_cannot_be_had_does_not_hold_back_what_a_run_that_has_ended_took(bench: Bench) -> None:
    def refuse() -> object:
        raise PenstockError("its driver has died")

    bench.save(one_path())
    bench.settle()
    bench.log("alpha").take("p0/0", 100, 0)
    bench.runs[0].status = refuse  # type: ignore[method-assign,assignment]
    bench.clock.advance(2.0)
    bench.runs[0].end()
    bench.settle()
    assert spans(bench) == [[(0, 100)]]
    assert bench.reconciler.state().paths[0].note.endswith("its driver has died")


def test_ends_although_a_run_does_not(bench: Bench) -> None:
    bench.save(one_path())
    bench.settle()
    bench.runs[0].may_end.clear()
    bench.reconciler.end(now=True)
    bench.settle()
    assert bench.reconciler.idle
    assert any("abandoned" in text for text in bench.reported)
    bench.runs[0].may_end.set()


def test_ends_although_a_start_does_not(bench: Bench) -> None:
    bench.save(one_path())
    bench.reconciler.step()
    bench.reconciler.end()
    bench.reconciler.step()
    bench.reconciler.end(now=True)
    bench.reconciler.step()
    assert not bench.reconciler.idle
    bench.clock.advance(1.0)
    bench.reconciler.step()
    assert bench.reconciler.idle
    bench.settle()
    assert any("path p0 has not ended and is abandoned" in text for text in bench.reported)
    state = read_state(bench.book)
    assert state is not None
    assert [each.application for each in state.sources] == ["alpha"]


# Users' code, and the disk


def test_an_application_whose_dataflow_cannot_be_made_is_left_and_others_run(bench: Bench) -> None:
    def find(booking: Booking) -> Dataflow:
        return {"beta": BETA}[booking.name]

    bench.reconciler = bench.new_reconciler(flows=find)
    bench.save(one_path(one_path(), BETA))
    bench.settle()
    assert bench.phases() == {"beta/p0": "running"}
    assert "warning: alpha: cannot be run and is skipped: KeyError: 'alpha'" in bench.reported


def test_a_source_that_cannot_be_made_rests_its_path_alone(bench: Bench) -> None:
    broken: list[str] = []

    def make() -> Generated[int]:
        if broken:
            raise KeyError(broken[0])
        return Generated(int, rate=300.0)

    gamma = Dataflow("gamma")
    numbers = gamma.source("in", make, cpu=1e-5, pinned="src")
    gamma.sink("out", Discard(), gamma.map("work", abs, numbers, cpu=0.02), cpu=1e-5, pinned="dst")
    bench.flows["gamma"] = gamma
    bench.save(one_path(one_path(), gamma))
    bench.settle()
    broken.append("no such topic")
    bench.runs[1].end("it failed")
    bench.settle()
    bench.clock.advance(6.0)
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running", "gamma/p0.2": "backoff"}
    assert any("path p0.2 cannot be started" in text and "KeyError: 'no such topic'" in text for text in bench.reported)
    broken.clear()
    bench.clock.advance(20.0)
    bench.settle()
    assert bench.phases() == {"alpha/p0": "running", "gamma/p0.2": "running"}


def test_a_split_log_that_cannot_be_read_rests_its_path_alone(bench: Bench) -> None:
    bench.save(one_path(one_path(), BETA))
    bench.settle()
    bench.runs[0].end("it failed")
    bench.settle()
    log = bench.log("alpha").path
    log.rename(log.with_suffix(".aside"))
    log.mkdir()
    bench.clock.advance(6.0)
    bench.settle()
    assert bench.reconciler.state().paths[0].phase is PathPhase.BACKOFF
    assert bench.phases()["beta/p0"] == "running"
    log.rmdir()
    log.with_suffix(".aside").rename(log)
    bench.clock.advance(20.0)
    bench.settle()
    assert bench.phases() == {"alpha/p0.2": "running", "beta/p0": "running"}


# Capacities


def test_sets_a_changed_capacity_in_all_runs_without_a_restart(bench: Bench) -> None:
    book = bench.save(one_path())
    bench.settle()
    assert bench.capacities == {}
    faster = bench.save(set_capacity(book, "w1", 3.0).book)
    bench.settle()
    assert bench.capacities == {"w1": 3.0}
    both = bench.save(set_capacity(faster, "src--w1", 0.5).book)
    bench.reconciler = bench.new_reconciler()
    bench.capacities.clear()
    bench.settle()
    assert bench.capacities == {"w1": 3.0, "src--w1": 0.5}, "a new operator has machines as they are described"
    bench.save(set_capacity(both, "w1", 1.0).book)
    bench.settle()
    assert bench.capacities == {"w1": 1.0, "src--w1": 0.5}
    assert [run.calls for run in bench.runs] == [[], []]


def test_machines_and_links_that_runs_share_give_what_the_book_says(tmp_path: Path) -> None:
    _scaler(tmp_path)(two_ways(), {"w1": 2.0, "src--w1": 0.5})
    cpu: SharedCpu[str] = SharedCpu(tmp_path, "w1", "a run", 1, 1.0, 1)
    assert cpu.speed == 2.0
    assert SharedLink(tmp_path, "src--w1", "a run", 100.0, 0.0).transmit(1000, 0.0) == pytest.approx(8000 / 50e6)


def book_again(bench: Bench, book: Book) -> Book:
    """Return a book as it was, as the version after the latest."""
    return replace(book, version=BookFile(bench.book).load().version + 1)
