"""How a run is divided into phases, and which part of each counts."""

from penstock.pipeline.phases import Event, divide_into_phases


def spans(events: list[Event], end: float = 30.0, settle: float = 2.0) -> list[tuple[str, float, float, float]]:
    return [(p.name, p.start, p.settled, p.end) for p in divide_into_phases(events, 0.0, end, settle, "first")]


def test_a_run_without_events_is_one_phase() -> None:
    assert spans([]) == [("first", 0.0, 2.0, 30.0)]


def test_named_phases_divide_a_run_and_moves_only_delay_settling() -> None:
    events = [
        Event(0.1, "phase", "round-robin"),
        Event(15.0, "phase", "local-search"),
        Event(15.5, "move", "a[0] m0/0 -> m1/0"),
        Event(16.0, "move", "a[1] m0/0 -> m1/0"),
        Event(28.0, "drain"),
        Event(29.0, "stop"),
    ]
    assert spans(events) == [("round-robin", 0.1, 2.1, 15.0), ("local-search", 15.0, 18.0, 28.0)]


def test_moves_in_quick_succession_are_one_change() -> None:
    events = [Event(at, "move", f"a[{at:g}]") for at in (10.0, 11.0, 12.5, 20.0)]
    assert spans(events) == [
        ("first", 0.0, 2.0, 10.0),
        ("move a[12.5]", 10.0, 14.5, 20.0),
        ("move a[20]", 20.0, 22.0, 30.0),
    ]


def test_a_move_soon_after_the_start_is_a_change() -> None:
    assert spans([Event(0.5, "apply", "heft")]) == [("first", 0.0, 0.25, 0.5), ("heft", 0.5, 2.5, 30.0)]


def test_an_apply_names_its_phase_with_any_moves() -> None:
    events = [Event(10.0, "move", "a[0]"), Event(10.5, "apply", "heft"), Event(11.0, "move", "a[1]")]
    assert spans(events) == [("first", 0.0, 2.0, 10.0), ("heft", 10.0, 13.0, 30.0)]


def test_all_moves_of_a_plan_belong_to_its_phase_however_long_they_take() -> None:
    events = [
        Event(10.0, "applying", "heft"),
        Event(13.0, "move", "a[0]"),
        Event(17.0, "move", "a[1]"),
        Event(17.0, "apply", "heft"),
    ]
    assert spans(events) == [("first", 0.0, 2.0, 10.0), ("heft", 10.0, 19.0, 30.0)]
    assert spans(events, settle=0.0) == [("first", 0.0, 0.0, 10.0), ("heft", 10.0, 17.0, 30.0)]


def test_a_plan_that_failed_claims_no_later_moves() -> None:
    events = [Event(10.0, "applying", "heft"), Event(10.0, "apply failed", "heft"), Event(20.0, "move", "a[0]")]
    found = [(name, start) for name, start, *_ in spans(events)]
    assert found == [("first", 0.0), ("heft (incomplete)", 10.0), ("move a[0]", 20.0)]


def test_a_plan_that_the_end_of_the_run_interrupted_is_incomplete() -> None:
    events = [
        Event(10.0, "applying", "heft"),
        Event(15.0, "applying", "t-storm"),
        Event(15.5, "apply", "t-storm"),
        Event(20.0, "applying", "vne"),
        Event(25.0, "drain"),
        Event(25.1, "apply failed", "vne"),
    ]
    assert [name for name, *_ in spans(events)] == ["first", "heft (incomplete)", "t-storm", "vne (incomplete)"]


def test_a_switch_names_its_phase_by_the_policies_from_then_on() -> None:
    events = [
        Event(5.0, "switch", "routing potus, slot 1 ms"),
        Event(10.0, "switch", "sending random, slot 1 ms"),
        Event(15.0, "switch", "none"),
        Event(20.0, "switch", "routing potus, slot 2 ms"),
        Event(20.1, "move", "a[0]"),
        Event(20.2, "apply", "heft"),
    ]
    assert [name for name, *_ in spans(events)] == [
        "first",
        "routing potus, slot 1 ms",
        "sending random, slot 1 ms",
        "no tuple policies",
        "heft with routing potus, slot 2 ms",
    ]


def test_a_short_phase_keeps_its_second_half() -> None:
    events = [Event(0.0, "phase", "a"), Event(10.0, "phase", "b"), Event(11.0, "phase", "c")]
    assert spans(events) == [("a", 0.0, 2.0, 10.0), ("b", 10.0, 10.5, 11.0), ("c", 11.0, 13.0, 30.0)]
