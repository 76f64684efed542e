"""What a report of a run says: its tables, row by row, without Spark."""

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One row of a table; times in seconds."""


class Reason(Row, frozen=True):
    """Why records are in quarantine."""

    reason: str
    count: int


class Latencies(Row, frozen=True):
    """Source tuples from when they were due to when all that follows from them was processed."""

    phase: int | None  # None: the whole run, settling included
    roots: int  # sampled
    count: int  # of them complete; the rest of the row is about these
    p50: float | None
    p95: float | None
    p99: float | None
    worst: float | None
    mean: float | None
    source_wait: float | None  # mean parts of the slowest way, which add up to the mean where every way is whole
    out_wait: float | None
    transfer: float | None
    wait: float | None
    processing: float | None
    hops: float | None  # mean a source tuple
    remote_hops: float | None
    remote_bytes: float | None


class PhaseResult(Row, frozen=True):
    """What a phase gave, its settling time left out."""

    number: int
    name: str
    start: float  # since the run's first tuple was due
    settled: float
    end: float
    throughput_tps: float | None  # that sources gave
    remote_tps: float | None  # tuples a second between machines: those of a sampled source tuple times the throughput
    moved: int | None  # tasks on another machine than in the phase before; None for the first
    latency: Latencies | None
    lag: float | None = None  # s that a worker's loop was late at worst, whatever held it up
    ratios: dict[str, float] = {}  # to the first phase


class ComponentTimes(Row, frozen=True):
    """The tuples of one component in one phase."""

    phase: int
    component: str
    count: int  # sampled
    wait_p50: float
    wait_p95: float
    wait_p99: float
    wait_mean: float
    processing_p50: float
    processing_p95: float
    processing_p99: float
    processing_mean: float
    total_p50: float
    total_p95: float
    total_p99: float
    total_mean: float
    out_wait_mean: float  # on the way there
    transfer_mean: float
    tasks: int = 0
    rate_tps: float | None = None  # processed, sampled or not


class EdgeTimes(Row, frozen=True):
    """The tuples of one stream, in one phase, between one pair of machines or all of them."""

    phase: int
    stream: str
    source_machine: str | None  # None: all
    target_machine: str | None
    count: int
    remote_share: float
    bytes_mean: float
    transfer_p50: float
    transfer_p95: float
    transfer_p99: float
    far_p50: float | None  # between machines only
    far_p95: float | None
    far_p99: float | None
    out_wait_p99: float
    negative: int  # transfers that came out below zero by the error of clocks, and count as zero


class SlowTask(Row, frozen=True):
    """A task that is slower than its fellows."""

    phase: int
    component: str
    task: str
    machine: str
    count: int
    p95: float  # of waiting and processing
    usual: float
    ratio: float


class SlowMachine(Row, frozen=True):
    """A machine whose tasks are slower than their fellows elsewhere."""

    phase: int
    machine: str
    tasks: int
    ratio: float


class Second(Row, frozen=True):
    """One second of a run."""

    second: int
    rate_tps: float | None
    count: int
    p50: float | None
    p99: float | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in a run."""

    run: str
    application: str
    policy: str
    emulated: str | None  # the cluster's name, where machines were emulated
    master: str
    seconds: float
    records: int
    sampled: int
    complete: int
    settle_s: float
    end_to_end: Latencies
    phases: list[PhaseResult]
    components: list[ComponentTimes]
    streams: list[EdgeTimes]
    edges: list[EdgeTimes]  # a pair of machines each
    slow_tasks: list[SlowTask]
    slow_machines: list[SlowMachine]
    timeline: list[Second]
    quarantine: list[Reason]
    tuples: str = ""  # tuple policies that it began with
