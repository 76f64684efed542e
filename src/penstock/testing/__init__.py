"""A whole cluster in one process, on a manual clock: for testing applications without Spark.

    def test_counts_words():
        result = testing.run(flow)
        assert Counter(result["print"]) == ...

The controller and the workers are the real ones; only sockets, processes and the clock are replaced. Every tuple
between two workers is encoded and decoded, so a value that cannot be encoded causes an error. The order in which frames
arrive and workers take turns is random, by seed: an application must give correct results in every order.

`penstock.testing.schedules` runs the same in virtual time with faults of every kind, to test the runtime itself.
"""

from penstock.testing.cluster import (
    CONTROLLER,
    START,
    ApplicationFailed,
    Captured,
    ManualClock,
    Result,
    TestCluster,
    run,
    tiny_cluster,
)
from penstock.testing.disk import MemoryDisk

__all__ = [
    "CONTROLLER",
    "START",
    "ApplicationFailed",
    "Captured",
    "ManualClock",
    "MemoryDisk",
    "Result",
    "TestCluster",
    "run",
    "tiny_cluster",
]
