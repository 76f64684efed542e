"""Tuples: latency, completeness and the slowest path, against plain Python."""

from itertools import pairwise

import pytest
from pyspark.sql import functions as sf

from penstock.pipeline.tuples import PARTS, tuples
from tests.pipeline.conftest import Steps
from tests.pipeline.synthetic import Row, Synthetic

pytestmark = pytest.mark.spark
CLOSE = 1e-6


def slowest_way(truth: Synthetic, root: int) -> list[Row]:
    own = {hop["id"]: hop for hop in truth.hops if hop["root"] == root}
    way = [max(own.values(), key=lambda hop: hop["finished"])]
    while way[0]["parent"] in own:
        way.insert(0, own[way[0]["parent"]])
    return way


def test_latency_is_from_due_to_the_last_hop(made: Steps, truth: Synthetic) -> None:
    found = {row["root"]: row for row in made.tuples.collect()}
    assert len(found) == len(truth.roots)
    for root in truth.roots:
        own = [hop for hop in truth.hops if hop["root"] == root["root"]]
        row = found[root["root"]]
        assert row["latency"] == pytest.approx(max(hop["finished"] for hop in own) - root["due"], abs=CLOSE)
        assert row["complete"]
        assert row["hops"] == len(own)
        assert row["remote_hops"] == sum(hop["worker"] != hop["source_worker"] for hop in own)
        assert row["remote_bytes"] == sum(hop["bytes"] for hop in own)
        assert row["source"] == "lines[0]"


def test_the_slowest_path_leads_from_the_source_to_the_last_hop(made: Steps, truth: Synthetic) -> None:
    lengths = set()
    for row in made.tuples.collect():
        way = slowest_way(truth, row["root"])
        assert [step["id"] for step in row["path"]] == [hop["id"] for hop in way]
        lengths.add(len(way))
    assert lengths >= {2, 3}


def test_parts_of_the_latency_add_up_to_it(made: Steps, truth: Synthetic) -> None:
    roots = {root["root"]: root for root in truth.roots}
    for row in made.tuples.collect():
        way = slowest_way(truth, row["root"])
        inner = [after["emitted"] - hop["started"] for hop, after in pairwise(way)]
        expected = {
            "source_wait": way[0]["emitted"] - roots[row["root"]]["due"],
            "out_wait": sum(hop["sent"] - hop["emitted"] for hop in way),
            "transfer": sum(hop["arrived"] - hop["sent"] for hop in way),
            "wait": sum(hop["started"] - hop["arrived"] for hop in way),
            "processing": sum(inner) + way[-1]["finished"] - way[-1]["started"],
        }
        assert {name: row[name] for name in PARTS} == pytest.approx(expected, abs=CLOSE)
        assert sum(row[name] for name in PARTS) == pytest.approx(row["latency"], abs=1e-9)


def test_without_done_records_a_tree_is_complete_when_it_closes(made: Steps, truth: Synthetic) -> None:
    untracked = made.good.where("kind != 'done'")
    middle, leaf, cut = (hop for hop in _of_different_roots(truth))
    # Without its split a tree has orphans; without a store it ends in a count, which may send; so does one cut there.
    hops = made.hops.where(~sf.col("id").isin(middle["id"], leaf["id"], cut["id"]))
    lost = {middle["root"], leaf["root"]}
    for row in tuples(hops, untracked, made.clocks).collect():
        own = [hop for hop in truth.hops if hop["root"] == row["root"]]
        parents = {hop["parent"] for hop in own}
        stores = all(hop["task"] == "store[0]" for hop in own if hop["id"] not in parents)
        assert row["complete"] == (stores and row["root"] not in lost and row["root"] != cut["root"])


def _of_different_roots(truth: Synthetic) -> list[Row]:
    """Return the split of one tree, the only store of another, and the only count of a third."""
    by_root = {root["root"]: [hop for hop in truth.hops if hop["root"] == root["root"]] for root in truth.roots}
    lines = [own for own in by_root.values() if len(own) == 3]  # split, count, store
    return [lines[0][0], lines[1][2], lines[2][1]]


def test_a_tree_without_its_last_hop_uses_the_controllers_record(made: Steps, truth: Synthetic) -> None:
    root = max(truth.roots, key=lambda root: len(slowest_way(truth, root["root"])))
    last = slowest_way(truth, root["root"])[-1]
    hops = made.hops.where((sf.col("root") == root["root"]) & (sf.col("id") != last["id"]))
    (row,) = tuples(hops, made.good.where(sf.col("root") == root["root"]), made.clocks).collect()
    assert row["complete"]
    assert row["latency"] == pytest.approx(root["finished"] - root["due"], abs=CLOSE)
    assert row["processing"] is None


def test_a_tree_without_its_root_record_has_no_parts(made: Steps, truth: Synthetic) -> None:
    root = truth.roots[0]["root"]
    own = made.good.where((sf.col("root") == root) & (sf.col("kind") == "hop"))
    (row,) = tuples(made.hops.where(sf.col("root") == root), own, made.clocks).collect()
    assert (row["complete"], row["latency"], row["source_wait"]) == (False, None, None)
    assert row["hops"] > 0
