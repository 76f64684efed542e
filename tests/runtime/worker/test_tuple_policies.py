"""Tuple policies in the runtime: what comes out is the same under all of them, whatever happens meanwhile."""

import copy
import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.contracts import Operator, Source, TaskContext
from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.cluster import Cluster, Distances, Link, Machine
from penstock.model.errors import PenstockError
from penstock.model.slotted import UNLIMITED
from penstock.model.tuples import TuplePolicies
from penstock.policies.registry import routing_policy
from penstock.policies.tuples.lanes import empty_queues, idle_lanes
from penstock.policies.tuples.routing import route
from penstock.runtime.controller.operations import Operation
from penstock.runtime.protocol import controller_messages
from penstock.runtime.protocol.frames import Credit, decode_frame
from penstock.runtime.worker.output import OutQueue
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.tuple_policies.router import Router
from penstock.testing import Captured, TestCluster, tiny_cluster
from penstock.testing.bugs import inject_bug
from penstock.testing.fault_schedule import ROUTINGS, SENDINGS, Fault, draw_policies, draw_schedule
from penstock.testing.faults import FaultyCluster
from tests.runtime import flows

LOADED = ("load-aware-shuffle", "least-loaded", "potus:v=0,in_flight=true", "potus-plus")
NEAR = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=0.0)


class Tapped(TestCluster):
    """A cluster that keeps the credits that go from worker to worker, and when."""

    def __init__(self, flow: Dataflow, **options: Any) -> None:
        self.credits: list[tuple[float, Credit]] = []
        super().__init__(flow, **options)

    def start(self) -> "Tapped":
        super().start()
        return self

    def _put(self, sender: int, receiver: int, message: bytes) -> None:
        if sender >= 0 and isinstance(frame := decode_frame(message), Credit):
            self.credits.append((self.clock(), frame))
        super()._put(sender, receiver, message)


class Which(Operator[int, tuple[int, int]]):
    """Gives every number with the task that it came to."""

    def open(self, context: TaskContext) -> None:
        self.task = context.task

    def process(self, value: int) -> Iterable[tuple[int, int]]:
        return ((self.task, value),)

    def snapshot(self) -> None:
        return None


class Endless(Source[Any]):
    """Values that come at a rate, or all at once; after the last it has none, and does not end by itself."""

    rewinds = True

    def __init__(self, values: Sequence[Any], rate: float = math.inf) -> None:
        self.values, self.rate = values, rate

    def open(self, context: TaskContext) -> None:
        self.at, self.start = 0, context.now()

    def poll(self, now: float, limit: int) -> list[Any]:
        due = len(self.values) if self.rate == math.inf else int((now - self.start) * self.rate + 1e-6)
        given = list(self.values[self.at : min(due, self.at + limit)])
        self.at += len(given)
        return given

    def next_due(self, now: float) -> float:
        return self.start + (self.at + 1) / self.rate if self.at < len(self.values) else math.inf

    def position(self) -> int:
        return self.at

    def seek(self, position: int) -> None:
        self.at = position


def spread(rate: float, count: int, tasks: int = 2, cpu: float = 2e-3) -> Dataflow:
    """Return an application whose source gives numbers to any of some tasks, which say which of them has got one."""
    flow = Dataflow("spread")
    numbers = flow.source("in", Endless(range(count), rate), emits=int)
    reported = flow.operator("work", Which, numbers, parallelism=tasks, cpu=cpu, emits=tuple[int, int])
    flow.sink("out", Captured([]), reported)
    return flow


def uneven(mbps: float | None = None) -> Cluster:
    """Return a machine for sources and sinks, a slow one, and one four times as fast."""
    speeds = {"home": 1.0, "slow": 1.0, "fast": 4.0}
    machines = tuple(Machine(name=name, speed=speed, network_mbps=mbps, slots=2) for name, speed in speeds.items())
    return Cluster(name="uneven", machines=machines, distances=NEAR)


def shares(policies: TuplePolicies) -> Counter[int]:
    """Return how many tuples a slow and a fast task got, of more than the slow one can take of half of."""
    placement = ["home/0", "slow/0", "fast/0", "home/1"]
    cluster = TestCluster(spread(1600.0, 1000), emulate=uneven(), placement=placement, window=2048, tuples=policies)
    cluster.start().advance(0.7)
    taken = cluster.drain()["out"]
    assert len(taken) == 1000
    return Counter(task for task, _ in taken)


def queue_of(cluster: TestCluster, task: str) -> OutQueue:
    number = cluster.layout.by_name[task]
    (found,) = (worker.tasks[number] for worker in cluster.workers if number in worker.tasks)
    return found.queues[0]


def router_of(cluster: TestCluster, task: str) -> Router:
    chooser = queue_of(cluster, task).chooser
    assert isinstance(chooser, Router)
    return chooser


@pytest.mark.slow
@pytest.mark.parametrize("sending", SENDINGS)
@pytest.mark.parametrize("routing", ROUTINGS)
def test_words_are_counted_right_under_every_policy(routing: str, sending: str) -> None:
    machines = tuple(Machine(name=f"m{n}", slots=2, speed=1.0 + n, network_mbps=2.0) for n in range(3))
    emulated = Cluster(name="narrow", machines=machines) if sending else None
    policies = TuplePolicies(routing=routing, sending=sending)
    cluster = TestCluster(flows.word_count(30), workers=3, emulate=emulated, tuples=policies, window=8)
    flows.check_counts(cluster.start().finish()["out"], 30)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_output_is_the_same_under_any_policies_switches_and_moves(seed: int) -> None:
    rng = random.Random(seed)
    nodes = flows.draw(seed)
    emulated = rng.choice([None, tiny_cluster(3, 2), uneven(0.5)])
    options: dict[str, Any] = {"window": rng.choice([1, 2, 8, 64]), "in_flight": rng.choice([0, 0, 5])}
    options |= {"checkpoint_s": rng.choice([0.0, 0.02]), "seed": seed % 1000}
    flow = flows.build(nodes)
    options |= {"tuples": draw_policies(rng, flow.application)}
    cluster = TestCluster(flow, workers=3, emulate=emulated, **options).start()
    slots = [slot for site in cluster.controller.spec.sites for slot in site.slots]
    for _ in range(6):
        for _ in range(rng.randrange(30)):
            cluster.step()
        cluster.advance(0.004 * rng.random())
        moves = [(rng.choice(cluster.layout.names), rng.choice(slots))] * rng.randrange(2)
        switch = None if moves and rng.random() < 0.5 else draw_policies(rng, flow.application)
        cluster.request(moves, lambda _: None, tuples=switch)
    result = cluster.finish()
    assert {sink: Counter(map(repr, values)) for sink, values in result.outputs.items()} == flows.evaluate(nodes)
    assert result.status.recoveries == 0


@pytest.mark.slow
def test_order_on_a_channel_is_kept_while_policies_are_switched_and_tasks_move() -> None:
    cluster = TestCluster(flows.ordered(3000), emulate=uneven(0.5), tuples=TuplePolicies(sending="random")).start()
    rng = random.Random(5)
    for sending in [*SENDINGS, *SENDINGS]:
        cluster.advance(0.01)
        cluster.apply([], tuples=TuplePolicies(sending=sending, slot_ms=rng.choice([0.5, 5.0])))
        cluster.move(rng.choice(cluster.layout.names), rng.choice(["home/0", "slow/1", "fast/0"]))
    assert len(cluster.finish()["out"]) == 3000  # its operators raise where order is broken


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOADED)
def test_a_slow_task_gets_fewer_tuples_by_a_policy_that_looks_at_load(policy: str) -> None:
    got = shares(TuplePolicies(routing=policy))
    assert got[0] < 0.5 * got[1]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["round-robin", "shuffle"])
def test_a_slow_task_gets_the_same_number_by_one_that_does_not(policy: str) -> None:
    got = shares(TuplePolicies(routing=policy))
    assert abs(got[0] - got[1]) < 100


def test_the_first_tuple_after_a_quiet_slot_leaves_at_once_and_others_wait_for_the_slot() -> None:
    flow = spread(500.0, 1000, cpu=0.0)
    cluster = TestCluster(flow, emulate=uneven(), tuples=TuplePolicies(routing="round-robin", slot_ms=5.5)).start()
    sent: dict[int, float] = {}
    while len(sent) < 10:
        cluster.advance(0.0005)
        gone = sum(lane.number for lane in queue_of(cluster, "in[0]").lanes)
        sent.setdefault(gone, cluster.clock())
    decisions = sorted(sent.items())[1:]
    assert [gone for gone, _ in decisions][:3] == [1, 3, 6]  # 2 ms apart, and a decision every 5.5 ms
    waits = np.diff([at for _, at in decisions])
    assert waits == pytest.approx(waits.mean(), abs=0.0011)
    assert waits.mean() == pytest.approx(0.0055, abs=0.0002)


@pytest.mark.slow
@given(
    st.sampled_from(["potus", "potus:v=0", "potus:spread=even,in_flight=true", "potus-plus", "least-loaded"]),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(1, 12)), min_size=4, max_size=4),
    st.integers(1, 60),
)
@settings(deadline=None)
def test_a_live_decision_is_that_of_the_kernel_on_the_same_view(
    spec: str, reported: list[tuple[int, int, int]], waiting: int
) -> None:
    placement = ["home/0", "slow/0", "fast/0", "home/1", "fast/1", "home/0"]
    policies = TuplePolicies(routing=spec, slot_ms=2.0)
    cluster = TestCluster(spread(1e-6, 1, tasks=4), emulate=uneven(), placement=placement, window=32, tuples=policies)
    router = router_of(cluster.start(), "in[0]")
    out = queue_of(cluster, "in[0]")
    queues, lanes = empty_queues(np.array([0, 4])), idle_lanes(*(np.zeros(4) for _ in range(4)))
    for place, (lane, (backlog, used, milliseconds)) in enumerate(zip(out.lanes, reported, strict=True)):
        lane.credits, lane.number = 32 - used, 40
        router.observe(place, Credit(1, 0, 0, lane.target, 0, backlog, 40 - used, milliseconds / 1e3, 0.25 * backlog))
        lanes.backlog[place], lanes.flying[place], lanes.outstanding[place] = backlog, used, used
        lanes.room[place], lanes.ahead[place] = 32 - used, 0.25 * backlog
        lanes.speed[place] = 2.0 / milliseconds
    lanes.cost[:], lanes.senders[:] = [1.0, 1.0, 0.0, 1.0], 1.0
    queues.waiting[0] = queues.arrived[0] = waiting
    rule, expected = routing_policy(spec).rule, np.zeros(4, dtype=np.int64)
    rng = copy.deepcopy(router._rng)
    route(rule.kind, rule.settings, queues, lanes, 0, 1, UNLIMITED, rng, expected)
    out.put(list(range(waiting)))
    assert [lane.number - 40 for lane in out.lanes] == expected.tolist()
    assert [lane.credits for lane in out.lanes] == (lanes.room - expected).tolist()


def test_links_between_machines_are_what_lanes_cost() -> None:
    names = "abcd"
    links = tuple(Link(source=a, target=b, bandwidth_mbps=100.0) for a, b in pairwise(names))
    line = Cluster(name="line", machines=tuple(Machine(name=name) for name in names), links=links)
    policies = TuplePolicies(routing="potus-plus:v=1,prices=false")
    placement = ["a/0", "a/0", "b/0", "d/0", "d/0"]
    cluster = TestCluster(spread(1.0, 5, tasks=3), emulate=line, placement=placement, tuples=policies).start()
    lanes = router_of(cluster, "in[0]").lanes
    assert lanes.cost.tolist() == [0.0, 1.0, 3.0]
    assert lanes.onward.tolist() == [3.0, 2.0, 0.0]  # to the sink, which is at the other end
    cluster.move("work[1]", "c/0")
    cluster.advance(0.1)
    assert lanes.cost.tolist() == [0.0, 2.0, 3.0]
    assert lanes.onward.tolist() == [3.0, 1.0, 0.0]


def test_a_policy_that_reads_load_gets_credit_once_per_slot_and_all_of_it() -> None:
    def ran(policies: TuplePolicies) -> Tapped:
        placement = ["home/0", "slow/0", "fast/0", "home/1"]
        flow = spread(300.0, 100, cpu=1e-4)
        cluster = Tapped(flow, emulate=uneven(), placement=placement, window=64, tuples=policies).start()
        cluster.advance(1.0)
        return cluster

    often = ran(TuplePolicies(routing="least-loaded", slot_ms=5.0))
    lanes = queue_of(often, "in[0]").lanes
    assert [lane.credits for lane in lanes] == [64, 64]  # the last ones too, though nothing follows them
    for lane in lanes:
        times = [at for at, credit in often.credits if (credit.stream, credit.target) == (0, lane.target)]
        assert len(times) > 10
        assert min(np.diff(times)) > 0.0049
    seldom = ran(TuplePolicies())
    assert sum(credit.stream == 0 for _, credit in seldom.credits) == 2 * (50 // 16)
    assert [lane.credits for lane in queue_of(seldom, "in[0]").lanes] == [64 - 50 % 16] * 2


def test_credit_reports_the_time_per_tuple_with_what_the_slot_does_for_other_tasks() -> None:
    def reported(placement: list[str], rate: float) -> dict[int, float]:
        policies = TuplePolicies(routing="round-robin", streams={"in->work": "potus-plus"})
        cluster = Tapped(spread(rate, 400), emulate=uneven(), placement=placement, window=2048, tuples=policies)
        cluster.start().advance(1.0)
        return {credit.target: credit.seconds for _, credit in cluster.credits if credit.stream == 0}

    apart = reported(["home/0", "slow/0", "fast/0", "home/1"], rate=400.0)
    assert apart[1] == pytest.approx(0.002, rel=0.05)
    assert apart[2] == pytest.approx(0.0005, rel=0.05)
    together = reported(["home/0", "slow/0", "slow/0", "home/1"], rate=800.0)
    assert together[1] == pytest.approx(0.004, rel=0.2)


def test_prices_propagate_upstream() -> None:
    flow = Dataflow("two-hops")
    numbers = flow.source("in", Endless(range(200), 300.0), emits=int)
    first = flow.operator("first", Which, numbers, parallelism=2, cpu=1e-4, emits=tuple[int, int])
    flow.sink("out", Captured([]), first, parallelism=2, cpu=3e-3)
    placement = ["home/0", "slow/0", "fast/0", "home/1", "home/1"]
    policies = TuplePolicies(routing="potus-plus:v=10", slot_ms=5.0)
    cluster = Tapped(flow, emulate=uneven(), placement=placement, window=2048, tuples=policies).start()
    cluster.advance(0.5)
    prices = [credit.price for _, credit in cluster.credits if credit.stream == 0]
    assert min(prices) >= 10.0  # a link, and what waits at its end
    assert router_of(cluster, "in[0]").lanes.ahead.min() >= 10.0
    assert all(credit.price == 0.0 for _, credit in cluster.credits if credit.stream == 1)


def test_a_target_without_a_report_gets_the_mean_of_the_others() -> None:
    cluster = TestCluster(spread(0.5, 2, tasks=3), emulate=uneven(), tuples=TuplePolicies(routing="potus-plus:v=10"))
    router = router_of(cluster.start(), "in[0]")
    for place, price in ((0, 40.0), (2, 20.0)):
        router.observe(place, Credit(cluster.controller.epoch, 0, 0, 0, 1, 0, 0, 1e-3, price))
    router.decide(1)
    assert router.lanes.ahead.tolist() == [40.0, 30.0, 20.0]


def hurried(sending: str) -> TestCluster:
    """Return an application of which one task has ten tuples at once for each of the other, over a narrow card."""
    flow = Dataflow("hurried")
    numbers = flow.source("in", Endless([(int(n % 11 == 0), (n % 11 == 0, n)) for n in range(110)]))
    passed = flow.map("pass", tuple, numbers.direct(), parallelism=2, emits=tuple[bool, int])
    flow.sink("out", Captured([]), passed)
    placement = ["home/0", "home/0", "home/1", "fast/0"]
    return TestCluster(
        flow, emulate=uneven(0.05), placement=placement, window=2048, tuples=TuplePolicies(sending=sending)
    )


@pytest.mark.parametrize(("sending", "first"), [("longest-backlog-first", 0), ("round-robin", 10)])
def test_the_queue_that_a_sending_policy_chooses_leaves_the_machine_first(sending: str, first: int) -> None:
    cluster = hurried(sending).start()
    cluster.advance(0.04)
    early = [few for few, _ in cluster.outputs["out"]]
    assert (sum(early), len(early) > 30) == (first, True)
    cluster.advance(1.0)
    assert len(cluster.drain()["out"]) == 110


def test_the_gate_releases_no_more_than_a_card_sends_in_a_slot() -> None:
    cluster = hurried("random").start()
    waited = 0
    for _ in range(100):
        cluster.advance(0.001)
        network = cluster.workers[0].execution._network._network  # type: ignore[attr-defined]
        (card,) = network._card
        assert card._free - cluster.clock() < 0.001 + 2 * 100 * 8 / 0.05e6
        waited = max(waited, queue_of(cluster, "pass[0]").backlog)
    assert waited > 20


def stuck() -> TestCluster:
    """Return an application one of whose queues has the signal for ever, and has nothing left to send."""
    policies = TuplePolicies(sending="longest-backlog-first:tau=1e9,conserving=false")
    flow = flows.ordered(2000, most=3)
    placement = ["home/0", "home/1", "home/0", "home/1", "fast/0", "fast/0", "fast/1", "slow/0", "slow/0", "slow/1"]
    return TestCluster(flow, emulate=uneven(), placement=placement, tuples=policies, checkpoint_s=0.05)


@pytest.mark.slow
def test_no_policy_holds_a_barrier_back() -> None:
    cluster = stuck().start()
    cluster.advance(1.0)
    found = cluster.controller.status(cluster.clock()).checkpoint
    assert found is not None
    assert found.number >= 3
    with inject_bug("policies-hold-barriers"):
        without = stuck().start()
        without.advance(1.0)
        assert without.controller.status(without.clock()).checkpoint is None


@pytest.mark.parametrize("grouping", ["shuffle", "partial-key"])
def test_what_a_policy_keeps_waiting_leaves_with_the_end(grouping: str) -> None:
    flow = Dataflow("kept")
    numbers = flow.source("in", Generated(int, count=3), emits=int)
    passed = flow.map("pass", abs, numbers, emits=int)
    flow.sink("out", Captured([]), passed.partial_key() if grouping == "partial-key" else passed, parallelism=2)
    policies = TuplePolicies(routing="potus:v=100,spread=none")
    cluster = TestCluster(flow, workers=2, placement=["w0/0", "w0/0", "w1/0", "w1/0"], tuples=policies)
    assert sorted(cluster.start().finish()["out"]) == [0, 1, 2]


def quiet(routing: str) -> TestCluster:
    """Return an application with three tuples, which an operator gives to sinks that are a link away."""
    flow = Dataflow("quiet")
    numbers = flow.source("in", Endless(range(3)), emits=int)
    flow.sink("out", Captured([]), flow.map("pass", abs, numbers, emits=int), parallelism=2)
    policies = TuplePolicies(routing=routing)
    placement = ["home/0", "home/1", "fast/0", "fast/1"]
    return TestCluster(flow, emulate=uneven(), placement=placement, tuples=policies, checkpoint_s=0.0)


def test_tuples_that_potus_holds_leave_at_the_end_of_the_input() -> None:
    cluster = quiet("potus:v=3").start()
    cluster.advance(0.09)
    assert len(queue_of(cluster, "pass[0]").values) == 3  # l is not below 0
    cluster.advance(0.03)
    assert queue_of(cluster, "pass[0]").backlog == 0
    cluster.advance(0.5)  # workers report four times a second
    assert cluster.controller.status(cluster.clock()).written == 3
    assert sorted(cluster.drain()["out"]) == [0, 1, 2]


def test_potus_holds_tuples_by_its_settings() -> None:
    cluster = quiet("potus:v=3,spread=none").start()
    cluster.advance(0.5)
    assert len(queue_of(cluster, "pass[0]").values) == 3
    assert sorted(cluster.drain()["out"]) == [0, 1, 2]


def test_a_task_may_leave_while_policies_are_switched() -> None:
    cluster = quiet("potus:v=3,spread=none").start()
    cluster.advance(0.05)
    (worker,) = (one for one in cluster.workers if len(one.tasks) == 2 and 0 in one.tasks)
    exchange = worker._exchange
    pumped, pump = [], exchange.pump

    def leaving(task: Task) -> None:
        pumped.append(task.number)
        pump(task)
        worker.tasks.pop(1 - task.number, None)

    exchange.pump = leaving  # type: ignore[method-assign]
    worker._switch_policies(controller_messages.PolicyRules())
    assert pumped == [0]


def test_a_switch_without_effect_is_rejected() -> None:
    flow = Dataflow("keyed")
    flow.sink("out", Captured([]), flow.source("in", Endless(range(3)), emits=int).fields(), parallelism=2)
    cluster = TestCluster(flow).start()
    with pytest.raises(PenstockError, match="no stream can have 'potus'; there are in->out by fields; omit it"):
        cluster.request([], lambda _: None, tuples=TuplePolicies(routing="potus"))
    assert cluster.controller.tuple_policies.tuples == TuplePolicies()


@pytest.mark.slow
def test_a_switch_is_in_force_in_every_worker_and_in_the_journal() -> None:
    cluster = TestCluster(flows.word_count(3000, most=1), emulate=tiny_cluster(3, 2)).start()
    cluster.advance(0.01)
    assert all(worker.policies is None for worker in cluster.workers)
    wanted = TuplePolicies(routing="potus-plus", sending="round-robin", slot_ms=3.0)
    assert cluster.apply([("count[0]", "m0/1")], tuples=wanted)[0].after == "m0/1"
    assert cluster.controller.status(cluster.clock()).tuples == wanted
    assert cluster.controller._journal().tuples == wanted
    streams = {"lines->split": "potus-plus", "count->out": "potus-plus"}
    reported = [(worker.rules.routing, worker.rules.sending) for worker in cluster.workers]
    assert reported == [(streams, "round-robin")] * 3
    cluster.apply([], tuples=TuplePolicies())
    cluster.settle()
    assert all(worker.policies is None for worker in cluster.workers)
    flows.check_counts(cluster.finish()["out"], 3000)


def test_a_rejected_switch_changes_nothing() -> None:
    cluster = TestCluster(flows.word_count(300)).start()
    ended: list[Operation] = []
    with pytest.raises(PenstockError, match="stream split->count is grouped by fields"):
        cluster.request([], ended.append, tuples=TuplePolicies(streams={"split->count": "potus"}))
    assert not ended
    assert cluster.controller.tuple_policies.tuples == TuplePolicies()
    flows.check_counts(cluster.finish()["out"], 300)


def test_policies_that_were_switched_are_in_force_after_recoveries_and_with_another_driver() -> None:
    kept = []
    for seed in range(16):
        schedule = draw_schedule(seed)
        faults = [Fault("switch", event=60), Fault("crash", event=120), Fault("driver", event=150)]
        schedule.faults[:] = faults
        cluster = FaultyCluster(schedule)
        cluster.run()
        in_force = cluster.driver.controller.tuple_policies.tuples
        assert all(
            process.worker.rules.sending == in_force.sending
            for process in cluster.processes.values()
            if process.alive and process.worker.epoch == cluster.driver.controller.epoch
        )
        kept.append(in_force != schedule.policies and cluster.drivers == 2)
    assert sum(kept) >= 10


def test_a_worker_without_policies_loads_no_compiler() -> None:
    script = "import sys, penstock.runtime.worker.process; print('numba' in sys.modules, 'scipy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]


def test_a_process_holds_back_what_its_sockets_do_not_take() -> None:
    flow = Dataflow("held")
    numbers = flow.source("in", Endless(range(50)), emits=int)
    flow.sink("out", Captured([]), numbers)
    cluster = TestCluster(flow, placement=["w0/0", "w1/0"], tuples=TuplePolicies(sending="round-robin"))
    unsent = [100_000]
    cluster.workers[0]._unsent = lambda: unsent[0]
    cluster.start().advance(0.1)
    assert queue_of(cluster, "in[0]").backlog == 50
    unsent[0] = 0
    cluster.advance(0.1)
    assert sorted(cluster.drain()["out"]) == list(range(50))


@pytest.mark.parametrize(
    "policies",
    [
        TuplePolicies(routing="potus:v=1e9,spread=none"),
        TuplePolicies(sending="longest-backlog-first:tau=1e9,conserving=false"),
    ],
)
def test_a_barrier_passes_a_task_full_of_tuples_that_a_policy_holds(policies: TuplePolicies) -> None:
    flow = Dataflow("full")
    numbers = flow.source("in", Endless(range(12_000)), emits=int)
    passed = flow.map("pass", abs, numbers, parallelism=2, emits=int)
    flow.sink("out", Captured([]), passed, parallelism=2)
    placement = ["w0/0", "w0/0", "w0/0", "w1/0", "w1/0"]
    cluster = TestCluster(flow, placement=placement, tuples=policies, checkpoint_s=0.5, window=8192, sample_tps=0.0)
    cluster.start().advance(0.4)
    held = max(queue_of(cluster, f"pass[{number}]").backlog for number in range(2))
    assert held > 1000
    cluster.advance(0.5)
    found = cluster.controller.status(cluster.clock()).checkpoint
    assert found is not None
    assert sorted(cluster.drain()["out"]) == list(range(12_000))
