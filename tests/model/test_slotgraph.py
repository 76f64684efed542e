import numpy as np

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.slotgraph import expand_links, expand_slots


def test_slots_know_their_process_machine_and_host() -> None:
    cluster = Cluster(
        name="c",
        machines=(
            Machine(name="a", slots=4, processes=2, cores=2, speed=3.0, host="h"),
            Machine(name="b", slots=1, host="h", slot_memory_mb=100.0, network_mbps=4.0, receive_mbps=3.0),
            Machine(name="c", slots=3, processes=2, network_mbps=10.0),
        ),
    )
    slots = expand_slots(cluster)
    assert slots.machine.tolist() == [0, 0, 0, 0, 1, 2, 2, 2]
    assert slots.process.tolist() == [0, 0, 1, 1, 2, 3, 3, 4]
    assert slots.host.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert slots.cpu.tolist() == [3.0] * 4 + [1.0] * 4
    assert slots.machine_cpu.tolist() == [6.0, 1.0, 1.0]
    assert slots.memory_mb[4] == 100.0
    assert np.isinf(slots.memory_mb[0])
    assert slots.machine_network.tolist() == [[np.inf, 4e6, 1e7], [np.inf, 3e6, 1e7]]
    assert cluster.slot_names[4:6] == ("b/0", "c/0")


def test_shared_links_have_an_arc_each_way_and_directed_ones_a_single_one() -> None:
    cluster = Cluster(
        name="c",
        machines=(Machine(name="a"), Machine(name="b")),
        switches=("s",),
        links=(
            Link(source="a", target="s", bandwidth_mbps=5.0, latency_ms=2.0),
            Link(source="s", target="b", bandwidth_mbps=7.0, directed=True),
        ),
    )
    links = expand_links(cluster)
    arcs = [(node, int(links.head[a])) for node in range(3) for a in range(links.start[node], links.start[node + 1])]
    assert arcs == [(0, 2), (2, 0), (2, 1)]
    assert links.bandwidth.tolist() == [5e6, 7e6]
    assert links.latency_ms.tolist() == [2.0, 0.0]
