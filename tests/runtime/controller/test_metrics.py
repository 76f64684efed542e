"""The controller's sums of its workers' reports."""

from penstock.runtime.controller.metrics import Metrics
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.worker_messages import ActivityReport, TaskReport
from tests.runtime.words import words


def reported(task: int, processed: int, at: float, interval: float = 1.0) -> ActivityReport:
    one = TaskReport(task=task, processed=processed, emitted=0, busy=0.0, blocked=0.0, queue=0, waiting_out=0)
    return ActivityReport(epoch=0, at=at, interval=interval, tasks=(one,), roots=(), acks=(), cpu=0.0, lag=0.0)


def test_counts_processed_tuples_by_task_on_any_worker() -> None:
    layout = Layout(words(rate=100))
    first = layout.first["split"]
    metrics = Metrics(layout)
    for worker, task, processed, at in ((0, 0, 5, 1.0), (0, 1, 7, 1.0), (1, 0, 30, 60.0)):  # the first has moved
        metrics.report(worker, reported(first + task, processed, at), at)
    found = {one.name: one for one in metrics.components(["m0"] * len(layout.components), 60.0)}
    assert found["split"].processed[:2] == (35, 7)
    assert len(found["split"].processed) == found["split"].tasks
    assert set(found["count"].processed) == {0}


def test_shows_the_rate_of_a_task_whose_tuples_take_longer_than_the_window() -> None:
    layout = Layout(words(rate=100))
    task, machines = layout.first["split"], ["m0"] * len(layout.components)
    metrics = Metrics(layout)
    metrics.report(0, reported(task, 1, 5.0, interval=5.0), 5.0)
    rates = [
        next(one.rate_tps for one in metrics.components(machines, now) if one.name == "split") for now in (9.9, 13)
    ]
    assert rates == [0.2, 0.0]
