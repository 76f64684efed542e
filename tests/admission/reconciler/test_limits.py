"""Limits that cannot be set at once."""

from pathlib import Path

import pytest

from penstock.admission import set_capacity
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sources.generated import Generated
from penstock.model.book import Book
from penstock.model.errors import PenstockError
from penstock.model.limits import Limits
from tests.admission.reconciler.fakes import Bench, FakeRun, admitted, flow, two_ways

ALPHA = flow("alpha")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, ALPHA)


class Deaf:
    """Replaces a run's method that sets limits: it only records them, and raises."""

    def __init__(self, run: FakeRun) -> None:
        self.run, self.taken = run, run.limit
        self.tried: list[Limits] = []
        self.why = "it does not hear"
        run.limit = self._refuse  # type: ignore[method-assign]

    def hears(self) -> None:
        """Let the run accept limits again."""
        self.run.limit = self.taken  # type: ignore[method-assign]

    def _refuse(self, limits: Limits) -> dict[str, float]:
        self.tried.append(limits)
        raise PenstockError(self.why)


def started(bench: Bench) -> tuple[Book, Deaf]:
    """Start a path whose run accepts no limits from then on."""
    book = bench.save(admitted(Book(cluster=two_ways()), ALPHA.application, paths=1))
    bench.settle()
    return book, Deaf(bench.runs[0])


def slower(bench: Bench, book: Book) -> float:
    """Save a book in which the path has less than before, and return how much."""
    machine = "w1" if "w1" in book["alpha"].paths[0].elements else "w2"
    changed = bench.save(set_capacity(book, machine, 0.5).book)
    assert changed["alpha"].rate_tps < 0.9 * book["alpha"].rate_tps
    return changed["alpha"].rate_tps


def test_retries_a_failed_limit_and_reports_it_once(bench: Bench) -> None:
    book, deaf = started(bench)
    rate = slower(bench, book)
    for _ in range(3):
        bench.settle()
    assert len(deaf.tried) == 1
    for _ in range(2):
        bench.clock.advance(1.0)
        bench.settle()
    assert len(deaf.tried) == 3
    assert deaf.run.limits == pytest.approx({"in": book["alpha"].rate_tps})
    deaf.hears()
    bench.clock.advance(1.0)
    bench.settle()
    assert deaf.run.limits == pytest.approx({"in": rate})
    assert sum("keeps its rate: it does not hear" in text for text in bench.reported) == 1
    assert bench.reported[-1].startswith("alpha: path p0 now at 25")
    assert not any("by another process" in text for text in bench.reported)


def test_a_change_too_small_to_be_seen_is_made_without_a_word(bench: Bench) -> None:
    book, deaf = started(bench)
    deaf.hears()
    machine = "w1" if "w1" in book["alpha"].paths[0].elements else "w2"
    changed = bench.save(set_capacity(book, machine, 1 - 1e-7).book)
    assert changed["alpha"].rate_tps < book["alpha"].rate_tps
    bench.settle()
    assert deaf.run.limits == {"in": changed["alpha"].rate_tps}
    assert not any("path p0 now at" in text for text in bench.reported)


def test_reports_another_reason(bench: Bench) -> None:
    book, deaf = started(bench)
    slower(bench, book)
    bench.settle()
    deaf.why = "its disk is full"
    for _ in range(2):
        bench.clock.advance(1.0)
        bench.settle()
    reported = [text for text in bench.reported if "keeps its rate" in text]
    assert [text.rsplit(": ", 1)[1] for text in reported] == ["it does not hear", "its disk is full"]


def test_a_limit_in_force_after_an_error_is_not_set_again(bench: Bench) -> None:
    book, deaf = started(bench)
    rate = slower(bench, book)
    bench.settle()
    deaf.run.limits = {"in": rate}
    for _ in range(3):
        bench.clock.advance(1.0)
        bench.settle()
    assert len(deaf.tried) == 1
    assert not any("by another process" in text for text in bench.reported)


def test_a_lower_limit_that_somebody_sets_while_the_booked_one_is_not_taken_stands(bench: Bench) -> None:
    book, deaf = started(bench)
    rate = slower(bench, book)
    bench.settle()
    deaf.run.limits = {"in": rate / 2}
    deaf.hears()
    for _ in range(2):
        bench.clock.advance(1.0)
        bench.settle()
    assert deaf.run.limits == {"in": rate / 2}
    assert "lower limits are kept until its run ends" in bench.reported[-1]


def test_its_state_has_the_booked_rates_by_source(tmp_path: Path) -> None:
    twofold = Dataflow("twofold")
    sources = [twofold.source(name, Generated(int, rate=rate), pinned="src") for name, rate in (("a", 90.0), ("b", 30))]
    twofold.sink("out", Discard(), twofold.map("work", abs, *sources, cpu=0.02), pinned="dst")
    bench = Bench(tmp_path, twofold)
    book = bench.save(admitted(Book(cluster=two_ways()), twofold.application, paths=1))
    bench.settle()
    (path,) = bench.reconciler.state().paths
    rate = book["twofold"].rate_tps
    assert path.sources == pytest.approx({"a": 0.75 * rate, "b": 0.25 * rate})
    assert path.sources == bench.runs[0].limits
