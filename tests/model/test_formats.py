import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.estimate.flow import TATA, estimate_flow, flow_net
from penstock.model.errors import FileProblem, InvalidInput, PenstockError
from penstock.model.formats.dspbench import MEASURED_AS, read_applications, read_operators
from penstock.model.formats.repetita import read_network
from penstock.model.formats.tata import read_slot_graphs, read_task_graphs
from penstock.model.slotgraph import expand_slots
from penstock.model.taskgraph import expand_tasks
from penstock.model.topology import Distribution, Grouping, Kind
from tests.shared_data import SHARED, needs_shared


def task_graph(widths: list[int], forward: tuple[int, ...] = ()) -> dict[str, Any]:
    """A chain of vertices as in the data set; `forward` holds the vertices joined task to task with the next."""
    operators: list[dict[str, Any]] = []
    for vertex, width in enumerate(widths):
        for task in range(width):
            operators.append(
                {
                    "id": len(operators),
                    "vertex_id": vertex,
                    "task_id": task,
                    "is_source": vertex == 0,
                    "is_sink": vertex == len(widths) - 1,
                    "cpu": vertex + 1,
                    "memory": 100 + vertex,
                }
            )
    edges = [
        {"from_id": a["id"], "to_id": b["id"]}
        for a in operators
        for b in operators
        if b["vertex_id"] == a["vertex_id"] + 1 and (a["vertex_id"] not in forward or a["task_id"] == b["task_id"])
    ]
    return {"operators": operators, "edges": edges}


def slot(number: int, process: int, device: int, cpu: float = 30, memory: float = 1000) -> dict[str, Any]:
    return {"id": number, "cpu": cpu, "memory": memory, "process": process, "device": device}


def write(path: Path, what: Any) -> Path:
    path.write_text(what if isinstance(what, str) else json.dumps(what))
    return path


class TestTaskGraphs:
    def test_reads_vertices_as_components_and_connections_as_groupings(self, tmp_path: Path) -> None:
        path = write(tmp_path / "graphs.json", {"train": [task_graph([1, 3, 3, 3, 1], (1,))], "valid": []})
        (application,) = read_task_graphs(path)
        assert [c.name for c in application.components] == ["v0", "v1", "v2", "v3", "v4"]
        assert [c.parallelism for c in application.components] == [1, 3, 3, 3, 1]
        assert [c.cpu for c in application.components] == [1, 2, 3, 4, 5]
        assert [c.memory_mb for c in application.components] == [100, 101, 102, 103, 104]
        assert [c.kind for c in application.components] == [Kind.SOURCE, *[Kind.OPERATOR] * 3, Kind.SINK]
        shuffle, forward = Grouping.SHUFFLE, Grouping.FORWARD
        assert [s.grouping for s in application.streams] == [shuffle, forward, shuffle, shuffle]
        assert read_task_graphs(path, "valid") == ()

    def test_two_single_tasks_shuffle(self, tmp_path: Path) -> None:
        (application,) = read_task_graphs(write(tmp_path / "graphs.json", {"train": [task_graph([1, 1])]}))
        assert application.streams[0].grouping is Grouping.SHUFFLE

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda g: g["operators"][2].update(cpu=9), "operators[2].cpu: expected 2.0 as in task 0"),
            (lambda g: g["operators"][2].update(cpu=-1), "operators[2].cpu: expected a number ≥ 0, got -1"),
            (lambda g: g["operators"][2].update(task_id=5), "operators[2].task_id: expected 1, the next task"),
            (lambda g: g["operators"][2].update(id=7), "operators[2].id: expected 2, its position, got 7"),
            (lambda g: g["operators"][2].pop("memory"), "operators[2].memory: missing"),
            (
                lambda g: g["operators"][4].update(vertex_id=0),
                "operators[4].vertex_id: vertex 0 is listed in two places",
            ),
            (lambda g: g["operators"][0].update(is_sink=True), "operators[0].is_sink: expected false for a source"),
            (lambda g: g["edges"].pop(0), "edges: vertices 0 and 1 are joined by 2 edges; expected 3 (all to all)"),
            (lambda g: g["edges"][0].update(to_id=99), "edges[0].to_id: expected an operator from 0 to 4, got 99"),
            (lambda g: g["edges"][0].update(from_id=4), "edges[0].to_id: expected a later vertex than 4's"),
            (lambda g: g["edges"].append(g["edges"][0]), "edges[6]: 0 -> 1 is listed twice"),
            (lambda g: g["edges"].clear(), "no stream leads on from 'v0'"),
        ],
    )
    def test_rejects_a_malformed_graph(
        self, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
    ) -> None:
        graph = task_graph([1, 3, 1])
        change(graph)
        path = write(tmp_path / "graphs.json", {"train": [graph]})
        with pytest.raises(InvalidInput) as refused:
            read_task_graphs(path)
        assert str(refused.value).startswith(f"{path}: train[0].")
        assert message in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_an_unknown_split_is_rejected_with_the_choices(self, tmp_path: Path) -> None:
        path = write(tmp_path / "graphs.json", {"train": [], "valid": []})
        with pytest.raises(InvalidInput, match="no split is named 'test'; there are train, valid"):
            read_task_graphs(path, "test")

    def test_rejects_what_is_not_json(self, tmp_path: Path) -> None:
        with pytest.raises(FileProblem, match=r"graphs\.json: not valid JSON"):
            read_task_graphs(write(tmp_path / "graphs.json", '{"train": [}'))
        with pytest.raises(FileProblem, match="cannot be read, no such file"):
            read_task_graphs(tmp_path / "absent.json")


class TestSlotGraphs:
    def test_keeps_the_order_of_slots(self, tmp_path: Path) -> None:
        graph = [slot(0, 1, 0, 20), slot(1, 1, 0, 20), slot(2, 0, 0, 40, 500), slot(3, 7, 2, 30)]
        (cluster,) = read_slot_graphs(write(tmp_path / "slots.json", [graph]))
        slots = expand_slots(cluster)
        assert slots.cpu.tolist() == [20, 20, 40, 30]
        assert slots.memory_mb.tolist() == [1000, 1000, 500, 1000]
        assert slots.process.tolist() == [0, 0, 1, 2]
        assert slots.host.tolist() == [0, 0, 0, 1]
        assert [m.memory_mb for m in cluster.machines] == [2000, 500, 1000]
        assert [m.cores for m in cluster.machines] == [2, 1, 1]

    @pytest.mark.parametrize(
        ("graph", "message"),
        [
            ([slot(0, 0, 0), slot(1, 1, 0), slot(2, 0, 0)], "[0][2].process: process 0 is listed in two places"),
            ([slot(0, 0, 0), slot(1, 0, 1)], "[0][1].device: expected 0 as in its process's first slot, got 1"),
            ([slot(0, 0, 0), slot(1, 0, 0, cpu=31)], "[0][1].cpu: expected 30.0"),
            ([slot(1, 0, 0)], "[0][0].id: expected 0, its position, got 1"),
            ([slot(0, 0, 0, cpu=0)], "[0][0].cpu: expected a number > 0, got 0"),
            ([], "[0]: expected at least one slot, got none"),
        ],
    )
    def test_rejects_a_malformed_graph(self, tmp_path: Path, graph: list[Any], message: str) -> None:
        path = write(tmp_path / "slots.json", [graph])
        with pytest.raises(InvalidInput) as refused:
            read_slot_graphs(path)
        assert str(refused.value).startswith(f"{path}: {message}")


@needs_shared
class TestTataDataSet:
    def test_has_the_papers_numbers(self) -> None:
        path = SHARED / "tata" / "task_graphs.json"
        train, valid = read_task_graphs(path), read_task_graphs(path, "valid")
        slots = read_slot_graphs(SHARED / "tata" / "slot_graphs.json")
        assert (len(train), len(valid), len(slots)) == (300, 100, 112)
        counts = [application.task_count for application in train + valid]
        assert (min(counts), max(counts)) == (3, 36)
        assert {s.grouping for a in train for s in a.streams} == {Grouping.SHUFFLE, Grouping.FORWARD}
        assert (min(c.slot_count for c in slots), max(c.slot_count for c in slots)) == (2, 15)

    def test_published_placements_give_the_published_throughput(self) -> None:
        cases = json.loads((SHARED / "tata" / "estimator_cases.json").read_text())
        applications = read_task_graphs(SHARED / "tata" / "task_graphs.json", cases["split"])
        clusters = read_slot_graphs(SHARED / "tata" / "slot_graphs.json")
        for case in cases["cases"][:40]:
            tasks = expand_tasks(applications[case["task_graph"]])
            slots = expand_slots(clusters[case["slot_graph"]])
            net = flow_net(tasks, slots, TATA)
            assert estimate_flow(net, case["placement"]).throughput_tps == pytest.approx(case["throughput"], rel=1e-9)


GRAPH = """NODES 3
label x y
0_New York/A 1.0 2.0
[b] 0 0
[b] 0 0

EDGES 4
label src dest weight bw delay
edge_0 0 1 10 2400000 1500
edge_1 1 0 10 2400000 1500
edge_2 0 1 10 600000 1700
edge_3 1 2 10 1000 0
"""


class TestNetworks:
    def test_reads_nodes_as_machines_and_edges_as_directed_links(self, tmp_path: Path) -> None:
        path = write(tmp_path / "small net.graph", GRAPH)
        cluster = read_network(path, cores=2, speed=1.5, memory_mb=100.0, slots=3)
        assert cluster.name == "small_net"
        assert [m.name for m in cluster.machines] == ["0_New_York_A", "_b_", "_b_-2"]
        assert {(m.cores, m.speed, m.memory_mb, m.slots) for m in cluster.machines} == {(2, 1.5, 100.0, 3)}
        assert all(link.directed for link in cluster.links)
        assert [(link.source, link.target) for link in cluster.links] == [
            ("0_New_York_A", "_b_"),
            ("_b_", "0_New_York_A"),
            ("_b_", "_b_-2"),
        ]

    def test_merges_parallel_edges(self, tmp_path: Path) -> None:
        links = read_network(write(tmp_path / "net.graph", GRAPH)).links
        assert [link.bandwidth_mbps for link in links] == pytest.approx([3000, 2400, 1])
        assert [link.latency_ms for link in links] == pytest.approx([1.7, 1.5, 0])

    def test_takes_another_unit_of_delay(self, tmp_path: Path) -> None:
        links = read_network(write(tmp_path / "net.graph", GRAPH), delay_unit_ms=1.0).links
        assert links[1].latency_ms == 1500

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("NODES 3", "NODES x", "line 1: NODES: expected a whole number ≥ 1, got 'x'"),
            ("NODES 3", "VERTICES 3", "line 1: expected 'NODES n', got 'VERTICES 3'"),
            ("NODES 3", "NODES 4", "line 8: expected 'EDGES n', got 'label src dest"),
            ("label x y", "x y", "line 2: expected 3 column names from 'label' on, got 'x y'"),
            ("[b] 0 0\n\n", "b\n\n", "line 5: expected 3 fields, got 'b'"),
            ("EDGES 4", "EDGES 3", "line 12: expected the end after 3 edges"),
            ("EDGES 4", "EDGES 5", "EDGES promises 5 lines, the file has 4"),
            ("edge_3 1 2", "edge_3 1 7", "line 12: dest: expected a node from 0 to 2, got 7"),
            ("edge_3 1 2", "edge_3 1 1", "line 12: dest: expected another node than src 1"),
            ("10 1000 0", "10 fast 0", "line 12: bw: expected a number ≥ 0, got 'fast'"),
            ("10 1000 0", "10 1000 nan", "line 12: delay: expected a number ≥ 0, got 'nan'"),
            (GRAPH, "", "expected a line 'NODES n' and one of column names, got the end of the file"),
        ],
    )
    def test_rejects_a_malformed_file(self, tmp_path: Path, old: str, new: str, message: str) -> None:
        path = write(tmp_path / "net.graph", GRAPH.replace(old, new, 1))
        with pytest.raises(FileProblem) as refused:
            read_network(path)
        assert str(refused.value).startswith(f"{path}: {message}")

    @needs_shared
    @pytest.mark.parametrize(
        ("name", "machines", "links"),
        [("Aarnet", 19, 48), ("Abilene", 11, 28), ("rf1221_real_hard", 104, 302), ("rf1755_real_hard", 87, 322)],
    )
    def test_reads_the_real_networks(self, name: str, machines: int, links: int) -> None:
        cluster = read_network(SHARED / "networks" / f"{name}.graph")
        assert (len(cluster.machines), len(cluster.links)) == (machines, links)

    @needs_shared
    def test_converts_units(self) -> None:
        link = read_network(SHARED / "networks" / "Abilene.graph").links[0]
        assert link.label == "0_New_York->1_Chicago"
        assert link.bandwidth_mbps == pytest.approx(9953.28)  # an OC-192
        assert link.latency_ms == pytest.approx(1.913)


TABLE = """app,operator,tuples_received,tuples_emitted,\
proc_ms_median_of_means,proc_ms_mean_last,proc_ms_sd_last,tuple_bytes_mean
wordcount,source,100,50,0.5,0.4,0.0,200
wordcount,split,50,500,2.0,1.0,0.5,20
wordcount,sink,500,0,0.1,0,0,
"""
EDGES = {
    "wordcount": [
        {"src": "source", "dst": "split", "grouping": "shuffle"},
        {"src": "split", "dst": "sink", "grouping": "fields"},
    ]
}


class TestDspBench:
    def read(self, folder: Path, table: str = TABLE, edges: Any = EDGES) -> Any:
        return read_applications(write(folder / "operators.csv", table), write(folder / "edges.json", edges))

    def test_takes_costs_variation_and_selectivity_from_the_table(self, tmp_path: Path) -> None:
        (application,) = self.read(tmp_path)
        source, split, sink = application.components
        assert (source.kind, split.kind, sink.kind) == (Kind.SOURCE, Kind.OPERATOR, Kind.SINK)
        assert [c.cpu for c in application.components] == pytest.approx([0.0005, 0.002, 0.0001])
        assert source.service.distribution is Distribution.CONSTANT
        assert (split.service.distribution, split.service.cv) == (Distribution.GAMMA, 0.5)
        assert [s.selectivity for s in application.streams] == [0.5, 10.0]
        assert [s.tuple_bytes for s in application.streams] == [200.0, 20.0]
        assert [s.grouping for s in application.streams] == [Grouping.SHUFFLE, Grouping.FIELDS]

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (",2.0,1.0,", ",fast,1.0,", "line 3: proc_ms_median_of_means: expected a number ≥ 0, got 'fast'"),
            ("sink,500", "sink,-5", "line 4: tuples_received: expected a number ≥ 0, got '-5'"),
            ("proc_ms_sd_last,", "sd,", "line 1: expected the columns"),
            ("wordcount,split", "wordcount,source", "line 3: operator: 'source' occurs twice"),
            (",2.0,1.0,0.5,20", "", "line 3: expected 8 fields, got fewer"),
        ],
    )
    def test_rejects_a_malformed_table(self, tmp_path: Path, old: str, new: str, message: str) -> None:
        with pytest.raises(FileProblem) as refused:
            self.read(tmp_path, TABLE.replace(old, new, 1))
        assert str(refused.value).startswith(f"{tmp_path / 'operators.csv'}: {message}")

    def test_names_both_lists_if_operators_do_not_match(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput) as refused:
            self.read(tmp_path, TABLE.replace("split", "splitter"))
        assert "wordcount: its streams name source, split, sink and the table has sink, source, splitter" in str(
            refused.value
        )

    def test_rejects_an_unknown_grouping(self, tmp_path: Path) -> None:
        edges = {"wordcount": [{"src": "source", "dst": "sink", "grouping": "any"}]}
        with pytest.raises(InvalidInput, match=r"wordcount\[0\].grouping: expected one of shuffle, fields"):
            self.read(tmp_path, edges=edges)

    @needs_shared
    def test_reads_all_eight_measured_applications(self) -> None:
        folder = SHARED / "applications"
        found = read_applications(folder / "dspbench_operators.csv", folder / "dspbench_edges.json")
        assert len(found) == 8
        by_name = {application.name: application for application in found}
        assert by_name["frauddetection"]["predictor"].cpu == pytest.approx(0.909e-6)
        assert by_name["clickanalytics"]["geography"].cpu == pytest.approx(77.433e-6)  # the table's locator
        assert len(by_name["logprocessing"].components) == 8
        (split,) = [s for s in by_name["wordcount"].streams if s.source == "splitter"]
        assert split.selectivity == pytest.approx(10.366433, abs=1e-6)

    @needs_shared
    def test_renamed_operators_received_what_their_streams_carried(self) -> None:
        folder = SHARED / "applications"
        table = read_operators(folder / "dspbench_operators.csv")
        edges = json.loads((folder / "dspbench_edges.json").read_text())
        for name, called in MEASURED_AS.items():
            carried: dict[str, float] = {}
            for edge in edges[name]:
                row = called.get(edge["dst"], edge["dst"])
                emitted = table[name][called.get(edge["src"], edge["src"])].emitted
                carried[row] = carried.get(row, 0.0) + emitted
            assert carried == {row: table[name][row].received for row in carried}


def spoil(text: str, at: int, length: int, junk: str) -> str:
    at %= len(text) + 1
    return text[:at] + junk + text[at + length :]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(at=st.integers(0, 5000), length=st.integers(0, 40), junk=st.text(max_size=12), which=st.integers(0, 4))
def test_a_damaged_file_is_read_or_rejected_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, at: int, length: int, junk: str, which: int
) -> None:
    folder = tmp_path_factory.mktemp("spoilt")
    graphs = json.dumps({"train": [task_graph([1, 2, 1])]})
    slots = json.dumps([[slot(0, 0, 0), slot(1, 1, 1)]])
    good = (graphs, slots, GRAPH, TABLE, json.dumps(EDGES))[which]
    path = folder / "spoilt"
    path.write_bytes(spoil(good, at, length, junk).encode("utf-8", "surrogatepass"))
    other = write(folder / "other", TABLE if which == 4 else json.dumps(EDGES))
    read: tuple[Callable[[], object], ...] = (
        lambda: read_task_graphs(path),
        lambda: read_slot_graphs(path),
        lambda: read_network(path),
        lambda: read_applications(path, other),
        lambda: read_applications(other, path),
    )
    complaint = f"{folder}: none"
    try:
        read[which]()
    except PenstockError as refused:
        complaint = str(refused)
    assert str(folder) in complaint
    assert "\n" not in complaint
