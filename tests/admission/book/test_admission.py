"""Which applications are admitted, on which paths and at which rates."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.admission import Admitted, Refused, admit, fail, measure_usage, release, replan, set_capacity
from penstock.admission.book.free_capacity import find_free_capacity
from penstock.admission.book.paths import AdmissionRequest, paths_in_turn
from penstock.estimate.availability import carries
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import DuplicateName, InvalidInput, UnknownMachine, UnknownName
from penstock.model.plan import to_placement
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.policies.registry import PolicyKind, names
from tests.admission.book.cases import application, book, diamond, fan
from tests.sparcle_cases import build, instances

CANONICAL = "sparcle:ties=lowest,together=false"
SLOW = ("optimal", "local-search", "sparcle-refined")  # a search takes its time budget for every path
NEEDS_MORE = ("predictive", "predictive-search")  # latency models


def admitted(book: Book, wanted: Application, **options: Any) -> Admitted:
    found = admit(book, wanted, **options)
    assert isinstance(found, Admitted), found
    return found


def refused(book: Book, wanted: Application, **options: Any) -> Refused:
    found = admit(book, wanted, **options)
    assert isinstance(found, Refused), found
    return found


def overfull(book: Book) -> list[str]:
    return [use.element for use in measure_usage(book) if use.guaranteed + use.best_effort > use.capacity * (1 + 1e-6)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "instance", [i for i in instances() if not i["ambiguous"]], ids=lambda instance: str(instance["id"])
)
def test_paths_in_turn_have_the_reference_rates(instance: dict[str, Any]) -> None:
    wanted, cluster = build(instance)
    paths = paths_in_turn(AdmissionRequest(wanted, CANONICAL), find_free_capacity(Book(cluster=cluster)), cluster)
    rates = [path.rate_tps for path in islice(paths, 3)]
    np.testing.assert_allclose(rates, instance["residual_path_rates"], rtol=1e-9)


def test_a_guarantee_reserves_no_more_than_requested() -> None:
    one = admitted(book(), application(rate=5.0)).booking
    assert [(path.rate_tps, path.reserved_tps) for path in one.paths] == [(5.0, 5.0)]
    assert one.achieved_availability == 1.0
    assert one.rate_tps == one.wanted_tps == 5.0


def test_a_guarantee_beyond_one_path_gets_another_cut_down_to_what_is_missing() -> None:
    two = admitted(book(), application(rate=12.0)).booking
    assert [path.rate_tps for path in two.paths] == pytest.approx([10.0, 2.0])
    assert [sorted(path.elements) for path in two.paths] == [
        ["a", "a--b", "b", "b--d", "d"],
        ["a", "a--c", "c", "c--d", "d"],
    ]


def test_paths_are_added_until_the_requested_availability_is_reached() -> None:
    rare = admitted(book(fails=0.1), application(rate=3.0, availability=0.85)).booking
    often = admitted(book(fails=0.1), application(rate=3.0, availability=0.95)).booking
    assert len(rare.paths) == 1
    assert rare.achieved_availability == pytest.approx(0.9)
    assert len(often.paths) == 2
    assert often.achieved_availability == pytest.approx(0.99)
    assert [path.reserved_tps for path in often.paths] == [3.0, 3.0]


def test_relays_and_links_count_for_the_availability() -> None:
    found = admitted(book(fails=0.1, link_fails=0.2), application(rate=1.0, work=0.0)).booking
    fails = book(fails=0.1, link_fails=0.2).failure_probabilities
    assert found.achieved_availability == pytest.approx(0.9 * 0.8**2)
    assert found.achieved_availability == carries([found.paths[0].elements], [1.0], 1.0, fails)


def test_a_refusal_leaves_nothing_reserved() -> None:
    before = admitted(book(), application("first", rate=6.0)).book
    assert refused(before, application("second", rate=9.0), advise=False).binding
    assert admitted(before, application("second", rate=8.0)).book.version == before.version + 1
    assert before == admitted(book(), application("first", rate=6.0)).book


def test_guaranteed_rates_are_subtracted_before_others_share() -> None:
    alone = admitted(book(), application("be"))
    assert alone.booking.rate_tps == pytest.approx(10.0)
    second = admitted(alone.book, application("gr", rate=7.0))
    assert second.book["be"].rate_tps == pytest.approx(3.0)
    (change,) = second.rates
    assert change.application == "be"
    assert (change.before_tps, change.after_tps) == pytest.approx((10.0, 3.0))
    assert not overfull(second.book)


@pytest.mark.slow
def test_best_effort_applications_share_by_priority() -> None:
    first = admitted(book(), application("one", priority=2.0), policy="greedy-sorted").book
    cramped = Book(cluster=first.cluster, bookings=first.bookings)
    # The other routes are worse than a share of the first until four applications use it.
    second = admitted(cramped, application("two", priority=2.0)).book
    assert second["one"].rate_tps == pytest.approx(second["two"].rate_tps)
    third = Book(cluster=only_way())
    for name, priority in (("one", 2.0), ("two", 1.0)):
        third = admitted(third, application(name, priority=priority)).book
    assert third["one"].rate_tps == pytest.approx(2 * third["two"].rate_tps)
    assert third["one"].rate_tps + third["two"].rate_tps == pytest.approx(10.0)


def only_way() -> Cluster:
    whole = diamond()
    return Cluster(name="way", machines=whole.machines, links=whole.links[:2])


def test_a_new_application_is_placed_where_predicted_capacity_is_highest() -> None:
    """If applications of high priority share the wide route, the narrow one is expected to give more (6)."""
    first = admitted(book(), application("heavy", priority=9.0)).book
    second = admitted(first, application("light", priority=1.0)).booking
    assert "c" in second.paths[0].elements  # 4/s there, 10 · 1/10 = 1/s on the wide route


def test_best_effort_paths_are_added_until_the_requested_availability_is_reached() -> None:
    one = admitted(book(fails=0.1), application(availability=0.9)).booking
    two = admitted(book(fails=0.1), application(availability=0.95)).booking
    assert len(one.paths) == 1
    assert one.achieved_availability == pytest.approx(0.9)
    assert len(two.paths) == 2
    assert two.achieved_availability == pytest.approx(0.99)
    assert two.rate_tps == pytest.approx(14.0)


def test_best_effort_finds_a_second_path_though_the_source_has_nothing_left() -> None:
    costly = application(availability=0.95)
    components = (Component(name="source", kind=Kind.SOURCE, cpu=0.5, pinned="a"), *costly.components[1:])
    busy = Application(name="busy", components=components, streams=costly.streams, availability=0.95)
    found = admitted(book(fails=0.1), busy).booking
    assert len(found.paths) == 2
    assert found.rate_tps == pytest.approx(2.0)  # what the source's machine allows for both together


def test_memory_is_held_by_every_path() -> None:
    machines = tuple(Machine(name=m.name, speed=m.speed, memory_mb=100.0) for m in diamond().machines)
    tight = Book(cluster=Cluster(name="tight", machines=machines, links=diamond().links))
    hungry = [
        Application(
            name=name,
            components=tuple(
                Component(name=c.name, kind=c.kind, cpu=c.cpu, pinned=c.pinned, memory_mb=40.0)
                for c in application().components
            ),
            streams=application().streams,
            guaranteed_tps=0.1,
        )
        for name in ("one", "two", "three")
    ]
    for wanted in hungry[:2]:
        tight = admitted(tight, wanted).book
    third = refused(tight, hungry[2])
    assert "needs 40 MB and the most left on machine 'a'" in third.reason


def test_threads_limit_a_path_on_a_machine_with_several_cores() -> None:
    wide = Cluster(name="wide", machines=(Machine(name="m", cores=4, slots=4),))
    chain = Application(
        name="chain",
        components=(Component(name="s", kind=Kind.SOURCE, cpu=0.1), Component(name="t", kind=Kind.SINK, cpu=1.0)),
        streams=(Stream(source="s", target="t"),),
    )
    found = admitted(Book(cluster=wide), chain)
    assert found.booking.rate_tps == pytest.approx(1.0)  # one thread, though the machine has four cores
    slowed = set_capacity(found.book, "m", 0.5).book
    assert slowed["chain"].rate_tps == pytest.approx(0.5)


def test_network_cards_of_a_mesh_are_booked_each_way() -> None:
    mesh = Cluster(
        name="mesh", machines=tuple(Machine(name=name, speed=100.0, network_mbps=8.0) for name in ("a", "d"))
    )
    first = admitted(Book(cluster=mesh), application("gr", rate=5.0))
    assert first.booking.paths[0].load["a"]["network (out)"] == pytest.approx(1e6)
    second = admitted(first.book, application("be"))
    assert second.booking.rate_tps == pytest.approx(3.0)
    assert not overfull(second.book)
    short = refused(first.book, application("more", rate=4.0), advise=False)
    assert short.binding in ("a", "d")
    assert refused(fail(first.book, "a").book, application("more", rate=1.0)).binding == "a"


def test_what_is_booked_can_be_run_on_the_cluster_as_described() -> None:
    before = fail(book(), "c").book
    found = admitted(before, application(rate=4.0))
    placement = to_placement(found.booking.paths[0].plan, application(rate=4.0), found.book.cluster)
    assert len(placement.slots) == 3
    assert found.booking.policy == "sparcle"


@pytest.mark.slow
@pytest.mark.parametrize("policy", [n for n in names(PolicyKind.PLACEMENT) if n not in (*SLOW, *NEEDS_MORE)])
def test_every_placement_policy_can_admit(policy: str) -> None:
    before = admitted(book(), application("first", rate=1.0), policy="greedy-sorted").book
    found = admit(before, application("second", rate=0.05), policy=policy, advise=False)
    assert isinstance(found, Admitted)
    assert not overfull(found.book)


@pytest.mark.parametrize("rate", [None, 1.0, 1e6])
def test_where_the_only_machine_may_fail_no_further_path_is_found(rate: float | None) -> None:
    alone = Cluster(name="alone", machines=(Machine(name="m", cores=1, failure_probability=0.1),))
    wanted = application("x", rate=rate, availability=0.99)
    wanted = replace(wanted, components=tuple(replace(part, pinned=None) for part in wanted.components))
    assert "0.9" in refused(Book(cluster=alone), wanted).reason


def test_a_failed_machine_is_not_used() -> None:
    without = fail(book(), "b").book
    assert admitted(without, application(rate=3.0)).booking.rate_tps == pytest.approx(3.0)
    assert "b" not in admitted(without, application(rate=3.0)).booking.paths[0].elements
    assert "b" not in admitted(without, application()).booking.paths[0].elements


def test_replans_a_guarantee_after_an_element_has_failed() -> None:
    both = admitted(admitted(book(), application("gr", rate=3.0)).book, application("be")).book
    broken = fail(both, "b")
    assert [u.application for u in broken.unmet] == ["gr"]
    found = replan(broken.book, "gr")
    assert isinstance(found, Admitted)
    assert found.booking.rate_tps == pytest.approx(3.0)
    assert "c" in found.booking.paths[0].elements
    assert [b.name for b in found.book.bookings] == ["gr", "be"]
    assert found.book["be"].paths[0].plan == both["be"].paths[0].plan


def test_a_rejected_replan_leaves_the_booking_unchanged() -> None:
    broken = fail(admitted(book(), application("gr", rate=9.0)).book, "b").book
    found = replan(broken, "gr")
    assert isinstance(found, Refused)
    assert found.suggestions
    assert broken["gr"].paths[0].reserved_tps == 9.0


def test_replanning_a_working_application_gives_the_same_rate() -> None:
    before = admitted(book(), application("gr", rate=9.0)).book
    found = replan(before, "gr")
    assert isinstance(found, Admitted)
    assert found.booking == before["gr"]


def test_refuses_a_second_admission() -> None:
    before = admitted(book(), application()).book
    with pytest.raises(DuplicateName, match="application: 'flow' is already in the book"):
        admit(before, application(rate=1.0))


@pytest.mark.slow
def test_more_paths_than_an_exact_availability_has_are_for_those_who_accept_an_estimate() -> None:
    wide, wanted = fan(24, 0.7), application(availability=0.998)  # 17.4 independent paths would do
    exact = refused(wide, wanted, paths=16, advise=False)
    assert f"{1 - 0.7**16:.6g} with 16 paths" in exact.reason
    with pytest.raises(InvalidInput, match="paths: expected at most 16 for an exact availability, got 24"):
        admit(wide, wanted, paths=24)
    found = admitted(wide, wanted, paths=24, estimate=True, seed=3)
    number = len(found.booking.paths)
    assert number > 17  # as the estimate might be too high by chance, its lower bound counts
    assert 0.998 <= found.booking.achieved_availability < 1 - 0.7**number < (found.at_most or 0.0)
    assert admitted(wide, wanted, paths=24, estimate=True, seed=3).at_most == found.at_most
    assert "an estimated 0.99" in refused(wide, application(availability=0.9995), paths=20, estimate=True).reason


def test_a_guarantee_of_many_paths_may_be_estimated_too() -> None:
    wide = fan(24, 0.7)
    found = admitted(wide, application(rate=1.0, availability=0.998), paths=24, estimate=True)
    assert found.at_most is not None
    assert found.booking.achieved_availability >= 0.998
    few = admitted(wide, application(rate=1.0, availability=0.9), paths=24, estimate=True)
    assert few.at_most is None
    assert few.booking.achieved_availability == pytest.approx(1 - 0.7 ** len(few.booking.paths))


@pytest.mark.parametrize("paths", [0, 65])
def test_refuses_a_senseless_number_of_paths(paths: int) -> None:
    with pytest.raises(InvalidInput, match=f"paths: expected a number from 1 to 16, got {paths}"):
        admit(book(), application(), paths=paths)


def test_refuses_senseless_promises() -> None:
    with pytest.raises(InvalidInput, match="guaranteed_tps: expected a number > 0, got -1"):
        application(rate=-1.0)
    for availability in (0.0, 1.5, -0.1):
        with pytest.raises(InvalidInput, match="availability: expected"):
            application(rate=1.0, availability=availability)


def test_refuses_an_application_that_costs_nothing() -> None:
    free = Application(
        name="free",
        components=(Component(name="s", kind=Kind.SOURCE), Component(name="t", kind=Kind.SINK)),
        streams=(Stream(source="s", target="t", tuple_bytes=0.0),),
    )
    with pytest.raises(InvalidInput, match="'free' uses no capacity at all"):
        admit(book(), free)


def test_refuses_a_resource_by_a_name_of_its_own() -> None:
    odd = Application(
        name="odd",
        components=(
            Component(name="s", kind=Kind.SOURCE, resources={"machine": 1.0}),
            Component(name="t", kind=Kind.SINK),
        ),
        streams=(Stream(source="s", target="t"),),
    )
    with pytest.raises(InvalidInput, match=r"components\[0\].resources.machine: this name is reserved"):
        admit(book(), odd)


def test_refuses_an_unknown_policy_and_an_unknown_pin() -> None:
    with pytest.raises(UnknownName, match="no policy is named 'sparkle'"):
        admit(book(), application(), policy="sparkle")
    with pytest.raises(UnknownMachine, match="has no 'z'"):
        admit(book(), application(source="z"))


def test_a_policy_that_finds_no_path_is_not_taken_for_a_proof() -> None:
    parts = (Component(name="in", kind=Kind.SOURCE), Component(name="out", kind=Kind.SINK, parallelism=2, cpu=0.1))
    wanted = Application(name="two", components=parts, streams=(Stream(source="in", target="out"),))
    alone = Book(cluster=Cluster(name="one", machines=(Machine(name="m"),)))
    reason = refused(alone, wanted, policy="flink").reason
    assert reason == "flink found no placement; round-robin finds one"
    assert admitted(alone, wanted, policy="round-robin").booking.rate_tps == pytest.approx(10.0)


def test_a_source_pinned_to_a_failed_machine_is_refused_by_name() -> None:
    found = refused(fail(book(), "a").book, application(rate=1.0))
    assert found.reason.startswith("component 'source' is pinned to machine 'a', which has failed; restore it")
    assert found.binding == "a"


def test_a_network_in_two_parts_is_refused() -> None:
    whole = diamond()
    parted = Cluster(name="parted", machines=whole.machines, links=(whole.links[0],))
    for wanted in (application(rate=1.0), application()):
        found = refused(Book(cluster=parted), wanted)
        assert "no links with bandwidth lead there" in found.reason


def test_a_link_without_bandwidth_on_the_only_route_is_named() -> None:
    whole = diamond()
    dry = Link(source="b", target="d", bandwidth_mbps=0.0)
    cut = Book(cluster=Cluster(name="cut", machines=whole.machines, links=(whole.links[0], dry)))
    found = refused(cut, application(rate=1.0))
    assert found.binding == "b--d"
    assert found.suggestions[0].element == "b--d"
    assert 1.0 <= found.suggestions[0].after <= 1.02
    assert refused(cut, application()).binding == "b--d"


def test_everything_failed_is_a_refusal() -> None:
    dark = book()
    for machine in "abcd":
        dark = fail(dark, machine).book
    free = Application(
        name="free",
        components=(Component(name="s", kind=Kind.SOURCE, cpu=1.0), Component(name="t", kind=Kind.SINK)),
        streams=(Stream(source="s", target="t"),),
    )
    assert refused(dark, free).reason == "every machine has failed; restoring a would admit it"


def test_release_returns_everything_that_a_guarantee_had() -> None:
    before = admitted(book(), application("one", rate=4.0)).book
    after = release(admitted(before, application("two", rate=5.0)).book, "two")
    assert after.bookings == before.bookings
    assert find_free_capacity(after) == find_free_capacity(before)
