"""What a book rejects, and its lookups."""

import pytest

from penstock.model.book import Book, BookedPath
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.plan import Plan

PAIR = Cluster(
    name="pair",
    machines=(Machine(name="a", failure_probability=0.1), Machine(name="b")),
    links=(Link(source="a", target="b", bandwidth_mbps=1.0, failure_probability=0.2),),
)

NOWHERE = Plan(
    application="x", cluster="pair", application_digest="", cluster_digest="", policy="", objective="", tasks={}
)


def test_knows_the_failure_probability_of_every_machine_and_link() -> None:
    assert Book(cluster=PAIR).failure_probabilities == {"a": 0.1, "b": 0.0, "a--b": 0.2}


def test_rejects_elements_that_the_cluster_does_not_have() -> None:
    with pytest.raises(UnknownName, match=r"failed\[0\]: 'pair' has no .* link 'c'; there are a, a--b, b"):
        Book(cluster=PAIR, failed=("c",))
    with pytest.raises(UnknownName, match=r"capacities\.c"):
        Book(cluster=PAIR, capacities={"c": 0.5})


def test_rejects_a_factor_that_is_no_capacity() -> None:
    with pytest.raises(InvalidInput, match=r"capacities\.a: expected a number > 0, got 0"):
        Book(cluster=PAIR, capacities={"a": 0.0})


def test_rejects_a_machine_that_is_named_like_a_link() -> None:
    machines = (*PAIR.machines, Machine(name="a--b"))
    with pytest.raises(InvalidInput, match="'a--b' is a machine and a link"):
        Book(cluster=Cluster(name="pair", machines=machines, links=PAIR.links))


def test_an_unknown_application_is_rejected_with_the_choices() -> None:
    with pytest.raises(UnknownName, match="application: the book has none named 'x'; it has none"):
        Book(cluster=PAIR)["x"]


def test_rejects_a_negative_rate_of_a_path() -> None:
    with pytest.raises(InvalidInput, match="rate_tps: expected a number ≥ 0, got -1"):
        BookedPath(plan=NOWHERE, rate_tps=-1.0, load={})
