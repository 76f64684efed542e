"""What the bases of users' classes do where these leave it out."""

from penstock.api.contracts import TaskContext, Timed
from tests.api.flows import Bare, Kept, Numbers


def test_a_task_knows_its_name_its_clock_and_its_timers() -> None:
    woken = []
    context = TaskContext("count", 2, 4, clock=lambda: 7.5, wake=lambda: woken.append(True))
    context.at(8.0)
    context.wake()
    assert (context.name, context.now(), context.timers, woken) == ("count[2]", 7.5, [8.0], [True])


def test_a_context_works_without_a_clock_and_a_loop() -> None:
    context = TaskContext("count", 0, 1)
    context.wake()
    assert context.now() == 0.0


def test_what_an_author_leaves_out_does_nothing() -> None:
    operator, sink, source = Bare(), Kept(), Numbers()
    context = TaskContext("c", 0, 1)
    for part in (operator, sink, source):
        part.open(context)
        part.close()
    assert operator.finish() is None
    assert operator.on_timer(1.0) is None
    assert (operator.snapshot(), sink.snapshot()) == (None, None)
    assert source.next_due(2.0) > 2.0
    assert not source.rewinds


def test_values_may_carry_their_dues() -> None:
    polled = Timed(["a", "b"], [0.5, 0.75])
    assert dict(zip(polled.values, polled.dues, strict=True)) == {"a": 0.5, "b": 0.75}
