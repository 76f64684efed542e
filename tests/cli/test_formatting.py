from penstock.cli.formatting import card, changed_texts, phase_labels, policies_in_words
from penstock.model.tuples import TuplePolicies
from penstock.pipeline.report_rows import PhaseResult


def phase(number: int, name: str) -> PhaseResult:
    return PhaseResult(
        number=number, name=name, start=0.0, settled=0.0, end=1.0, throughput_tps=None, remote_tps=None, moved=None,
        latency=None,
    )  # fmt: skip


def test_labels_of_phases_are_unique() -> None:
    names = ("heft", "routing potus, sending random", "routing potus, sending fifo", "heft", "r-storm")
    labels = phase_labels([phase(number, name) for number, name in enumerate(names)])
    assert list(labels.values()) == ["heft (1)", "phase 2", "phase 3", "heft (4)", "r-storm"]


def test_omits_the_slot_of_a_plan_without_one() -> None:
    assert policies_in_words(TuplePolicies(routing="potus")) == ["routing potus"]
    assert policies_in_words(TuplePolicies(routing="potus", slot_ms=1.0)) == ["routing potus", "slot 1 ms"]
    assert policies_in_words(TuplePolicies()) == []


def test_only_what_differs_is_a_change() -> None:
    assert changed_texts({"a": "1", "b": "2"}, {"b": "3", "c": "4"}, "-") == {
        "a": ("1", "-"),
        "b": ("2", "3"),
        "c": ("-", "4"),
    }


def test_shows_both_directions_of_a_card_if_they_differ() -> None:
    assert card(100.0, 100.0) == "100 Mbit/s"
    assert card(1000.0, 50.0) == "1 Gbit/s out, 50 Mbit/s in"
