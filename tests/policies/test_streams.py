"""Which routing policy each stream has, which it cannot have, and how a user specifies it."""

import pytest
from msgspec.structs import replace

from penstock.model.errors import PenstockError
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.model.tuples import TuplePolicies, over
from penstock.policies.registry import PolicyKind, names
from penstock.policies.streams import changed, check, check_names, kept_groupings, parse_policies, routings

FIXED = [Grouping.FIELDS, Grouping.ALL, Grouping.GLOBAL, Grouping.FORWARD, Grouping.DIRECT]
COMPARING = ["partial-key", "least-loaded", "potus", "potus-plus"]
KEYED = ["fields", "partial-key"]


def application(grouping: Grouping) -> Application:
    """Return a source, an operator behind a shuffled stream, and a sink behind a stream of a grouping."""
    return Application(
        name="chain",
        components=(
            Component(name="a", kind=Kind.SOURCE, parallelism=2),
            Component(name="b", parallelism=2),
            Component(name="c", kind=Kind.SINK, parallelism=2),
        ),
        streams=(
            Stream(source="a", target="b"),
            Stream(source="b", target="c", grouping=grouping, keys=("k",) if "key" in grouping else ()),
        ),
    )


def refusal(policies: TuplePolicies, grouping: Grouping = Grouping.SHUFFLE) -> str:
    with pytest.raises(PenstockError) as found:
        check(policies, application(grouping))
    return str(found.value)


@pytest.mark.parametrize("grouping", FIXED)
def test_a_stream_whose_grouping_decides_has_no_policy(grouping: Grouping) -> None:
    assert routings(TuplePolicies(routing="potus"), application(grouping)) == {"a->b": "potus"}
    reported = refusal(TuplePolicies(streams={"b->c": "potus"}), grouping)
    problem = f"routing: stream b->c is grouped by {grouping}, which determines the task of each tuple, got 'potus'"
    assert reported == f"{problem}; omit it or choose another"


@pytest.mark.parametrize("policy", names(PolicyKind.ROUTING))
def test_a_stream_by_partial_key_has_policies_that_compare_two_tasks(policy: str) -> None:
    policies, chain = TuplePolicies(streams={"b->c": policy}), application(Grouping.PARTIAL_KEY)
    if policy in COMPARING:
        assert routings(policies, chain) == ({} if policy == "partial-key" else {"b->c": policy})
    else:
        assert "only least-loaded, partial-key, potus, potus-plus can select" in refusal(policies, Grouping.PARTIAL_KEY)


@pytest.mark.parametrize("policy", names(PolicyKind.ROUTING))
@pytest.mark.parametrize("grouping", [Grouping.SHUFFLE, Grouping.LOCAL_OR_SHUFFLE])
def test_a_shuffled_stream_may_have_every_policy_without_keys(policy: str, grouping: Grouping) -> None:
    policies = TuplePolicies(streams={"b->c": policy})
    if policy in KEYED:
        assert "has no keys" in refusal(policies, grouping)
    else:
        assert routings(policies, application(grouping)) == {"b->c": policy}


def test_the_policy_of_a_stream_overrides_that_of_the_application() -> None:
    policies = TuplePolicies(routing="potus:v=1", streams={"b->c": "shuffle"})
    assert routings(policies, application(Grouping.SHUFFLE)) == {"a->b": "potus:v=1", "b->c": "shuffle"}


def test_the_policy_of_an_application_does_not_apply_to_other_groupings() -> None:
    chain = application(Grouping.PARTIAL_KEY)
    assert routings(TuplePolicies(routing="round-robin"), chain) == {"a->b": "round-robin"}
    assert routings(TuplePolicies(routing="partial-key"), chain) == {}
    assert routings(TuplePolicies(routing="least-loaded"), chain) == {"a->b": "least-loaded", "b->c": "least-loaded"}


@pytest.mark.parametrize(
    ("policy", "grouping", "wanted"),
    [
        ("potus", Grouping.FIELDS, "shuffle"),
        ("round-robin", Grouping.PARTIAL_KEY, "shuffle"),
        ("partial-key", Grouping.SHUFFLE, "partial-key"),
    ],
)
def test_a_policy_that_no_stream_can_have_is_rejected_with_the_streams_and_their_groupings(
    policy: str, grouping: Grouping, wanted: str
) -> None:
    ends = (Component(name="b", kind=Kind.SOURCE), Component(name="c", kind=Kind.SINK, parallelism=2))
    alone = Application(name="alone", components=ends, streams=application(grouping).streams[1:])
    with pytest.raises(PenstockError) as found:
        check(TuplePolicies(routing=policy), alone)
    remedy = f"omit it, or group a stream by {wanted}"
    assert str(found.value) == f"routing: no stream can have '{policy}'; there are b->c by {grouping}; {remedy}"


def test_streams_that_exchange_prices_must_have_equal_v() -> None:
    policies = TuplePolicies(routing="potus-plus:v=2", streams={"b->c": "potus-plus:v=5"})
    problem = "routing: prices of streams are added, but a->b has v=2, b->c has v=5"
    assert refusal(policies) == f"{problem}; use equal values, or prices=false for one"
    check(TuplePolicies(routing="potus-plus:v=2", streams={"b->c": "potus-plus:v=2"}), application(Grouping.SHUFFLE))
    mixed = TuplePolicies(routing="potus-plus:v=2", streams={"b->c": "potus-plus:v=5,prices=false"})
    assert len(routings(mixed, application(Grouping.SHUFFLE))) == 2


@pytest.mark.parametrize(
    ("policies", "problem"),
    [
        (TuplePolicies(routing="nearest"), "routing: no routing policy is named 'nearest'; there are fields"),
        (TuplePolicies(sending="slowest"), "sending: no sending policy is named 'slowest'; there are fifo"),
        (TuplePolicies(streams={"a->c": "potus"}), "routing: no stream is named 'a->c'; did you mean "),
        (TuplePolicies(streams={"a->b": "potus:w=1"}), "routing.potus: no parameter is named 'w'"),
        (TuplePolicies(routing="fields"), "routing: 'fields' follows from a stream's grouping and cannot be chosen"),
        (TuplePolicies(sending="longest-backlog-first:tau=-1"), "sending.longest-backlog-first.tau: expected a number"),
    ],
)
def test_unknown_names_are_rejected_with_the_choices(policies: TuplePolicies, problem: str) -> None:
    reported = refusal(policies)
    assert reported.startswith(problem)
    assert "\n" not in reported


def test_a_change_affects_only_named_streams() -> None:
    before = TuplePolicies(routing="potus", streams={"a->b": "shuffle"}, sending="random", slot_ms=2.0)
    assert changed(before, None, None, None) == before
    after = changed(before, ["b->c=potus-plus:v=2", "least-loaded"], None, 5)
    streams = {"a->b": "shuffle", "b->c": "potus-plus:v=2"}
    assert after == TuplePolicies(routing="least-loaded", streams=streams, sending="random", slot_ms=5.0)
    assert changed(after, ["none", "a->b=none", "b->c=none"], "none", 1.0) == TuplePolicies(slot_ms=1.0)
    assert changed(before, "potus:v=4", None, None).routing == "potus:v=4"


def test_streams_that_a_plan_does_not_name_keep_their_policy() -> None:
    before = TuplePolicies(routing="potus", streams={"a->b": "shuffle"}, sending="random", slot_ms=2.0)
    assert over(before, TuplePolicies()) == before
    assert over(before, TuplePolicies(routing="least-loaded")) == replace(before, routing="least-loaded")
    assert over(before, TuplePolicies(slot_ms=1.0)) == replace(before, slot_ms=1.0)
    assert over(before, TuplePolicies(streams={"a->b": "none"})) == replace(before, streams={})
    assert over(before, TuplePolicies(routing="none", sending="none")) == replace(before, routing="", sending="")


def test_none_is_kept_in_a_change() -> None:
    named = parse_policies(["none", "a->b=none"], "none", None)
    assert named == TuplePolicies(routing="none", streams={"a->b": "none"}, sending="none")
    check_names(named)
    assert parse_policies(None, None, None) == TuplePolicies()


@pytest.mark.parametrize("text", ["", "a->b=", "=potus", "="])
def test_a_policy_without_a_name_is_rejected(text: str) -> None:
    with pytest.raises(PenstockError) as found:
        changed(TuplePolicies(), [text], None, None)
    problem = f"routing: expected POLICY or STREAM=POLICY, got {text!r}; name a policy, or none"
    assert str(found.value) == problem
    with pytest.raises(PenstockError, match="sending: expected a policy, got ''"):
        changed(TuplePolicies(), None, "", None)


def test_names_the_streams_to_which_a_policy_for_all_does_not_apply() -> None:
    chain = application(Grouping.FIELDS)
    assert kept_groupings(TuplePolicies(routing="potus"), chain) == {"b->c": "fields"}
    assert kept_groupings(TuplePolicies(sending="random"), chain) == {}
    assert kept_groupings(TuplePolicies(streams={"a->b": "potus"}), chain) == {}


def test_a_slot_must_be_longer_than_zero() -> None:
    with pytest.raises(PenstockError, match="slot_ms: expected a number > 0, got -1; choose another, or omit it"):
        changed(TuplePolicies(), None, None, -1)


def test_a_slot_is_rejected_if_no_policy_is_in_force() -> None:
    with pytest.raises(PenstockError) as found:
        changed(TuplePolicies(), None, None, 5)
    problem = "slot_ms: no policy in force uses slots, got 5"
    assert str(found.value) == f"{problem}; set a routing or sending policy"
    assert changed(TuplePolicies(sending="random"), None, None, 5).slot_ms == 5.0
    assert changed(TuplePolicies(), "potus", None, 5) == TuplePolicies(routing="potus", slot_ms=5.0)


def test_policies_are_described_in_words() -> None:
    assert TuplePolicies(slot_ms=3.0).texts == {}
    reported = TuplePolicies(routing="potus", streams={"a->b": "shuffle"}, slot_ms=0.5).texts
    assert reported == {"routing": "potus", "routing of a->b": "shuffle", "slot": "0.5 ms"}


@pytest.mark.parametrize("texts", [["potus", "shuffle"], ["a->b=potus", "a->b=shuffle"]])
def test_two_routings_for_the_same_streams_are_rejected(texts: list[str]) -> None:
    with pytest.raises(PenstockError, match=r"given twice for .*, again as .*shuffle'; remove one"):
        changed(TuplePolicies(), texts, None, None)
