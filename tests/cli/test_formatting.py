from penstock.cli.formatting import card, changed_texts, phase_labels, policies_in_words
from penstock.model.tuples import TuplePolicies
from penstock.pipeline.report_rows import PhaseResult


def phase(number: int, name: str) -> PhaseResult:
    return PhaseResult(
        number=number, name=name, start=0.0, settled=0.0, end=1.0, throughput_tps=None, remote_tps=None, moved=None,
        latency=None,
    )  # fmt: skip


def test_phases_are_told_apart_whatever_their_names() -> None:
    names = ("heft", "routing potus, sending random", "routing potus, sending fifo", "heft", "r-storm")
    labels = phase_labels([phase(number, name) for number, name in enumerate(names)])
    assert list(labels.values()) == ["heft (1)", "phase 2", "phase 3", "heft (4)", "r-storm"]


def test_a_plan_that_names_no_slot_says_none() -> None:
    assert policies_in_words(TuplePolicies(routing="potus")) == ["routing potus"]
    assert policies_in_words(TuplePolicies(routing="potus", slot_ms=1.0)) == ["routing potus", "slot 1 ms"]
    assert policies_in_words(TuplePolicies()) == []


def test_only_what_differs_is_a_change() -> None:
    assert changed_texts({"a": "1", "b": "2"}, {"b": "3", "c": "4"}, "-") == {
        "a": ("1", "-"),
        "b": ("2", "3"),
        "c": ("-", "4"),
    }


def test_a_card_is_told_each_way_where_the_two_differ() -> None:
    assert card(100.0, 100.0) == "100 Mbit/s"
    assert card(1000.0, 50.0) == "1 Gbit/s out, 50 Mbit/s in"
