"""The tables of a run's report as records, without Spark."""

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One row of a table; times in seconds."""


class Reason(Row, frozen=True):
    """Number of records in quarantine by reason."""

    reason: str
    count: int


class Latencies(Row, frozen=True):
    """Latency of source tuples, from due until all descendants were processed."""

    phase: int | None  # None: the whole run, including settling
    roots: int  # sampled
    count: int  # complete ones; the other fields are about these
    p50: float | None
    p95: float | None
    p99: float | None
    worst: float | None
    mean: float | None
    source_wait: float | None  # mean parts of the slowest path, which add up to the mean if all paths are complete
    out_wait: float | None
    transfer: float | None
    wait: float | None
    processing: float | None
    hops: float | None  # mean per source tuple
    remote_hops: float | None
    remote_bytes: float | None


class PhaseResult(Row, frozen=True):
    """Measurements of a phase, without its settling time."""

    number: int
    name: str
    start: float  # since the run's first tuple was due
    settled: float
    end: float
    throughput_tps: float | None  # emitted by sources
    remote_tps: float | None  # tuples per second between machines: per sampled source tuple, times the throughput
    moved: int | None  # tasks on another machine than in the previous phase; None for the first
    latency: Latencies | None
    lag: float | None = None  # maximum delay of a worker's loop in seconds, whatever the cause
    ratios: dict[str, float] = {}  # relative to the first phase


class ComponentTimes(Row, frozen=True):
    """Times of the tuples of one component in one phase."""

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
    out_wait_mean: float  # before they arrive there
    transfer_mean: float
    tasks: int = 0
    rate_tps: float | None = None  # processed, sampled or not


class EdgeTimes(Row, frozen=True):
    """Times of the tuples of one stream in one phase, between one pair of machines or all of them."""

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
    negative: int  # transfers measured below zero because of clock errors; they count as zero


class SlowTask(Row, frozen=True):
    """A task that is slower than others of its component."""

    phase: int
    component: str
    task: str
    machine: str
    count: int
    p95: float  # of waiting and processing
    usual: float
    ratio: float


class SlowMachine(Row, frozen=True):
    """A machine whose tasks are slower than others of their components."""

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
    """The report of a run."""

    run: str
    application: str
    policy: str
    emulated: str | None  # the cluster's name if machines were emulated
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
    edges: list[EdgeTimes]  # one per pair of machines
    slow_tasks: list[SlowTask]
    slow_machines: list[SlowMachine]
    timeline: list[Second]
    quarantine: list[Reason]
    tuples: str = ""  # tuple policies at the start
