"""The applications of Li's dissertation, which ran on Storm: word count, log processing, continuous queries.

Structure, groupings and numbers of tasks are from the dissertation (§2.3, §3.3), which has no costs. Processing time,
variation, selectivity and tuple size are those of DSPBench if it has measured an equivalent operator, assumed to be on
a core of speed 1; the rest are assumptions, marked as such. Speed 1 is a 2.0 GHz core of Li's cluster.

A task holds 128 MB, the default of Storm's resource-aware scheduler: three applications of 100 tasks, the
dissertation's maximum, then fit on ten machines of 4 GB.
"""

from typing import Annotated

from msgspec import Meta

from penstock.model.entity import Count, Positive
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream

TASK_MEMORY_MB = 128.0
MICROSECOND = 1e-6

SENTENCE_BYTES = 158.6  # DSPBench word count, output of its source
WORDS_A_SENTENCE = 10.366  # words per sentence emitted by its splitter
WORD_BYTES = 51.6
COUNT_BYTES = 75.8
DATABASE_US = 50.0  # assumption: time of the database client per insertion
LINE_BYTES = 243.5  # DSPBench log processing, output of its source
LOG_COUNT_BYTES = 48.0
QUERIES_LARGE_TPS = 6650.0  # §3.3: "about 6600-6700 tuples per second", close to the arrival rate


def gamma(cv: float) -> ServiceTime:
    """Return times with a gamma distribution of a coefficient of variation."""
    return ServiceTime(distribution=Distribution.GAMMA, cv=cv)


EXPONENTIAL = ServiceTime(distribution=Distribution.EXPONENTIAL)


def _component(name: str, tasks: int, cpu_us: float, service: ServiceTime, kind: Kind = Kind.OPERATOR) -> Component:
    return Component(
        name=name, kind=kind, parallelism=tasks, cpu=cpu_us * MICROSECOND, memory_mb=TASK_MEMORY_MB, service=service
    )


def word_count(
    sources: Count = 6,
    splitters: Count = 8,
    counters: Count = 8,
    databases: Count = 8,
    second_sources: Annotated[int, Meta(ge=0)] = 0,
) -> Application:
    """Count the words of a stream of lines: source, split, count, database (§2.3).

    source: takes a line from a queue. split: shuffle; emits one tuple per word. count: fields by word; emits every new
    count.
    database: shuffle; stores it. `second_sources` tasks of a second source read lines from a file. The splitter's cost
    is DSPBench's mean of the last window, 37 µs; its median over all windows, 1.1 ms, seems to include time blocked, as
    the splitter received only 60 % of the output of its source.
    """
    names = ["source"] if second_sources == 0 else ["queue-source", "file-source"]
    return Application(
        name="word-count",
        components=(
            *(
                _component(source, tasks, 2.832, gamma(1.108), Kind.SOURCE)
                for source, tasks in zip(names, (sources, second_sources), strict=False)
            ),
            _component("split", splitters, 36.679, gamma(0.375)),
            _component("count", counters, 4.083, gamma(0.168)),
            _component("database", databases, DATABASE_US, EXPONENTIAL, Kind.SINK),
        ),
        streams=(
            *(Stream(source=source, target="split", tuple_bytes=SENTENCE_BYTES) for source in names),
            Stream(
                source="split",
                target="count",
                grouping=Grouping.FIELDS,
                keys=("word",),
                selectivity=WORDS_A_SENTENCE,
                tuple_bytes=WORD_BYTES,
            ),
            Stream(source="count", target="database", tuple_bytes=COUNT_BYTES),
        ),
    )


def log_processing(
    sources: Count = 3, rules: Count = 6, indexers: Count = 6, counters: Count = 6, databases: Count = 6
) -> Application:
    """Analyse a stream of log lines: source, rules, then index and count, each with a database of its own (§2.3).

    rules: shuffle; a rule engine, assumed to take 100 µs per line, that sends every line to both streams.
    index: shuffle; assumed to take 50 µs. count: fields by the entry's type; costs as much as DSPBench's volume
    counter. `databases` is the number of tasks of each of the two.
    """
    return Application(
        name="log-processing",
        components=(
            _component("source", sources, 28.538, gamma(2.991), Kind.SOURCE),
            _component("rules", rules, 100.0, EXPONENTIAL),
            _component("index", indexers, 50.0, EXPONENTIAL),
            _component("count", counters, 8.834, gamma(0.33)),
            _component("index-database", databases, DATABASE_US, EXPONENTIAL, Kind.SINK),
            _component("count-database", databases, DATABASE_US, EXPONENTIAL, Kind.SINK),
        ),
        streams=(
            Stream(source="source", target="rules", tuple_bytes=LINE_BYTES),
            Stream(source="rules", target="index", tuple_bytes=LINE_BYTES),
            Stream(
                source="rules", target="count", grouping=Grouping.FIELDS, keys=("entry_type",), tuple_bytes=LINE_BYTES
            ),
            Stream(source="index", target="index-database", tuple_bytes=LINE_BYTES),
            Stream(source="count", target="count-database", tuple_bytes=LOG_COUNT_BYTES),
        ),
    )


def continuous_queries(
    sources: Count = 5, queries: Count = 13, writers: Count = 13, rate_tps: Positive | None = None
) -> Application:
    """Look random queries up in a table in memory: source, query, write (§2.3).

    All figures are assumptions, as nothing comparable was measured. source: 5 µs per query of 100 bytes. query:
    shuffle; scans 10,000 rows at 80 ns, 0.8 ms; half of the queries hit, as a vehicle is speeding or not at random.
    write: shuffle; appends a record of 200 bytes to a file, 50 µs.
    """
    return Application(
        name="continuous-queries",
        components=(
            _component("source", sources, 5.0, EXPONENTIAL, Kind.SOURCE),
            _component("query", queries, 800.0, gamma(0.1)),
            _component("write", writers, 50.0, EXPONENTIAL, Kind.SINK),
        ),
        streams=(
            Stream(source="source", target="query", tuple_bytes=100.0),
            Stream(source="query", target="write", selectivity=0.5, tuple_bytes=200.0),
        ),
        rate_tps={} if rate_tps is None else {"source": rate_tps},
    )
