"""Trees of traced tuples, from reports in any order."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.controller.progress import CompletedTree, TupleTrees


def tree(ids: list[int]) -> list[tuple[str, int]]:
    """Return the reports of a chain of tuples: the root, its first tuple, and each tuple with the next."""
    reported = [("root", 0), ("ack", ids[0])]
    reported += [("ack", taken ^ made) for taken, made in pairwise(ids)]
    return [*reported, ("ack", ids[-1])]


@given(st.integers(1, 6).flatmap(lambda size: st.permutations(tree([1 << place for place in range(size)]))))
def test_a_tree_is_complete_after_all_reports_in_any_order(reported: list[tuple[str, int]]) -> None:
    trees = TupleTrees()
    for place, (kind, ids) in enumerate(reported):
        found = trees.root(5, 3, 10.0, 20.0) if kind == "root" else trees.ack(5, ids, 10.0 + place, 20.0)
        assert (found is not None) == (place == len(reported) - 1)
    latest = max(10.0 + place for place, (kind, _) in enumerate(reported) if kind == "ack")
    assert found == CompletedTree(5, 3, 10.0, latest)
    assert len(trees) == 0


def test_a_root_without_descendants_is_complete_at_once() -> None:
    trees = TupleTrees()
    assert trees.root(5, 0, 1.0, 1.0) is None
    assert trees.ack(5, 0, 1.25, 1.0) == CompletedTree(5, 0, 1.0, 1.25)


def test_accepts_negative_times() -> None:
    trees = TupleTrees()
    trees.root(5, 0, -3.0, -2.0)
    assert trees.ack(5, 0, -2.5, -2.0) == CompletedTree(5, 0, -3.0, -2.5)


def test_counts_and_discards_trees_that_time_out() -> None:
    trees = TupleTrees(timeout=10.0)
    trees.root(1, 0, 0.0, 100.0)
    trees.root(2, 0, 0.0, 105.0)
    trees.expire(109.0)
    assert (len(trees), trees.timed_out) == (2, 0)
    trees.expire(110.0)
    assert (len(trees), trees.timed_out) == (1, 1)
    trees.expire(200.0)
    assert (len(trees), trees.timed_out) == (0, 2)


def test_a_report_after_the_timeout_is_not_counted_again() -> None:
    trees = TupleTrees(timeout=10.0)
    trees.root(1, 0, 0.0, 100.0)
    trees.expire(111.0)
    assert trees.ack(1, 77, 112.0, 112.0) is None
    trees.expire(130.0)
    assert (len(trees), trees.timed_out) == (0, 1)
