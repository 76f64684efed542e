"""Suggestions admit the application if they are applied exactly as printed."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.admission import Admitted, SuggestionKind, fail
from penstock.admission.book.free_capacity import FreeCapacity, Need
from penstock.admission.book.path_selection import select_paths
from penstock.admission.book.paths import AdmissionRequest, Shortage
from penstock.admission.book.suggestions import Trials, round_down, round_up, suggest_increases
from penstock.model.book import CPU, Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.topology import Application, Component, Kind, Stream
from tests.admission.book.applying import Asked
from tests.admission.book.cases import application, book


def unsteady() -> Asked:
    """Return a case in which more cpu of one machine admits the application, and slightly more does not.

    It was found by random search and depends on all digits.
    """
    speeds = {
        "m0": 1.0671174384398245,
        "m1": 1.6591844853376279,
        "m2": 1.4588624896823634,
        "m3": 1.793668225759849,
        "m4": 1.302681643932392,
    }
    often = {"m3": 0.1, "m4": 0.1}
    two = {"m2": 2}
    machines = tuple(
        Machine(
            name=name,
            cores=two.get(name, 1),
            slots=2 if name in ("m1", "m4") else 1,
            speed=speed,
            failure_probability=often.get(name, 0.0),
        )
        for name, speed in speeds.items()
    )
    ways = (
        ("m1", "m0", 17.030570547328537, False, 0.05),
        ("m2", "m0", 5.724172775436184, False, 0.0),
        ("m3", "m0", 17.243389181724094, True, 0.05),
        ("m0", "m3", 19.05813119313049, True, 0.0),
        ("m4", "m0", 14.667895161144937, False, 0.05),
        ("s0", "m2", 5.242127378455473, True, 0.0),
        ("m2", "s0", 15.723379550970675, True, 0.0),
        ("m3", "m2", 4.635878422908209, False, 0.1),
    )
    links = tuple(
        Link(source=u, target=v, bandwidth_mbps=width, directed=directed, failure_probability=fails)
        for u, v, width, directed, fails in ways
    )
    wanted = Application(
        name="flow",
        components=(
            Component(name="s0", kind=Kind.SOURCE, pinned="m1"),
            Component(name="s1", kind=Kind.SOURCE, pinned="m2"),
            Component(name="w0", cpu=0.959917401376048),
            Component(name="w1", cpu=0.498930275309161, parallelism=2),
            Component(name="w2", cpu=0.10579623572751928, parallelism=2),
            Component(name="t", kind=Kind.SINK, cpu=0.01),
        ),
        streams=(
            Stream(source="s0", target="w0", tuple_bytes=76371.37271117461),
            Stream(source="s1", target="w0", tuple_bytes=121090.2757982416),
            Stream(source="w0", target="w1", selectivity=2.0, tuple_bytes=182958.71492313212),
            Stream(source="w1", target="w2", tuple_bytes=187573.31293447633),
            Stream(source="w2", target="t", tuple_bytes=84479.88857997446),
        ),
        guaranteed_tps=1.1564994874156407,
        availability=0.8,
    )
    return Asked(Book(cluster=Cluster(name="unsteady", machines=machines, switches=("s0",), links=links)), wanted)


@pytest.mark.slow
def test_suggested_amounts_were_tried_exactly_as_printed() -> None:
    asked = unsteady()
    found = asked.refusal()
    more = [remedy for remedy in found.suggestions if remedy.kind is SuggestionKind.CPU]
    assert more
    for remedy in more:
        assert f"would need {remedy.after:.4g} " in remedy.text
        assert asked.lets_in(remedy), remedy.text


class Banded(Trials):
    """Trials that succeed if an amount is in one of some bands, and record what was tried."""

    def __init__(self, book: Book, request: AdmissionRequest, need: Need, *bands: tuple[float, float]) -> None:
        super().__init__(book, request)
        self.need, self.bands, self.tried = need, bands, set[float]()

    def met(self, room: FreeCapacity, request: AdmissionRequest | None = None) -> bool:
        amount = room.whole(self.need)
        self.tried.add(amount)
        return any(low <= amount <= high for low, high in self.bands)


@pytest.mark.parametrize("narrow", [(2.42151, 2.42199), (1.5, 1.6), (3.0, 3.0)])
def test_of_amounts_that_are_enough_only_one_that_can_be_printed_is_offered(narrow: tuple[float, float]) -> None:
    request = AdmissionRequest(application(rate=20.0), "sparcle")
    refused = select_paths(book(), request)
    need = refused.paths[0].limit._replace(element="a", kind=CPU)
    trials = Banded(book(), request, need, narrow, (4.00017, math.inf))
    (offered,) = suggest_increases(trials, refused._replace(paths=(), rates=(), shortage=Shortage("none", (need,))))
    assert offered.after in trials.tried
    assert any(low <= offered.after <= high for low, high in trials.bands)
    assert offered.after == float(f"{offered.after:.4g}")
    assert f"machine a would need {offered.after:.4g} cores" in offered.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_suggestion_admits_a_random_application(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = book(fails=float(rng.choice([0.05, 0.1])), link_fails=0.02)
    links = tuple(replace(link, bandwidth_mbps=float(rng.uniform(1, 12))) for link in start.cluster.links)
    start = replace(start, cluster=replace(start.cluster, links=links))
    first = Asked(start, application("first", rate=float(rng.uniform(0.5, 2)))).answer()
    held = first.book if isinstance(first, Admitted) else start
    often = float(rng.choice([0.8, 0.9, 0.99]))
    asked = Asked(held, application(rate=float(rng.uniform(8, 20)), availability=often), int(rng.choice([1, 3, 8])))
    found = asked.refusal()
    assert found.suggestions
    for remedy in found.suggestions:
        assert asked.lets_in(remedy), remedy.text


def pinned_to_what_fails(rate: float | None, availability: float) -> Asked:
    """Return a case whose worker is pinned to a machine with availability 0.9 and 10 tuples per second."""
    wanted = application(rate=rate, availability=availability)
    parts = tuple(replace(one, pinned="b") if one.name == "work" else one for one in wanted.components)
    return Asked(book(fails=0.1), replace(wanted, components=parts))


def test_where_neither_rate_nor_availability_can_be_had_both_are_lowered() -> None:
    asked = pinned_to_what_fails(20.0, 0.99)
    found = asked.refusal()
    assert found.reason.endswith(
        "limited by a--b; no rate with availability 0.99 was found, but 10/s with availability 0.9 is achievable"
    )
    (both,) = found.suggestions
    assert (both.kind, both.before, both.after) == (SuggestionKind.RATE, 20.0, 10.0)
    assert [(one.kind, one.before, one.after) for one in both.also] == [(SuggestionKind.AVAILABILITY, 0.99, 0.9)]
    assert asked.lets_in(both)


def test_lowers_only_the_rate_if_the_availability_is_achievable() -> None:
    found = pinned_to_what_fails(20.0, 0.85).refusal()
    rate = next(remedy for remedy in found.suggestions if remedy.kind is SuggestionKind.RATE)
    assert (rate.after, rate.also) == (10.0, ())


@pytest.mark.parametrize("rate", [2.0, None])
def test_where_a_link_has_nothing_and_its_ends_fail_more_of_it_goes_with_a_lower_availability(
    rate: float | None,
) -> None:
    asked = pinned_to_what_fails(rate, 0.99)
    links = tuple(
        replace(link, bandwidth_mbps=0.0) if link.label in ("a--b", "a--c") else link
        for link in asked.book.cluster.links
    )
    asked = asked._replace(book=replace(asked.book, cluster=replace(asked.book.cluster, links=links)))
    found = asked.refusal()
    (remedy,) = found.suggestions
    assert remedy.text.endswith(", with an availability of 0.9 instead of 0.99")
    assert remedy.also[-1].kind is SuggestionKind.AVAILABILITY
    assert asked.lets_in(remedy)


def test_suggests_what_helps_after_restoring_if_that_does_not_suffice() -> None:
    asked = pinned_to_what_fails(20.0, 0.99)
    book = fail(fail(asked.book, "a--b").book, "a--c").book
    found = asked._replace(book=book).refusal()
    (remedy,) = found.suggestions
    assert remedy.kind is SuggestionKind.RESTORE
    assert "restored, no rate with availability 0.99 was found, but" in remedy.text
    assert asked._replace(book=book).lets_in(remedy)


def test_numbers_are_rounded_as_they_are_printed() -> None:
    for value in (1.23456, 23.009, 99999.0, 0.00012345678, 7.0):
        up, down = round_up(value), round_down(value)
        assert down <= value <= up
        assert (float(f"{up:.4g}"), float(f"{down:.4g}")) == (up, down)
        assert (round_up(up), round_down(down)) == (up, down)
    assert round_up(2.99, digits=1) == 3.0
    assert round_down(0.0) == 0.0
