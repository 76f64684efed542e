"""Ingest: telemetry files as one table of sound records, and a quarantine for the rest, each with the reason.

A file that cannot be read, or whose columns have other types, goes to the quarantine as one row; a record that breaks
the schema goes there whole. So a run that ended badly can still be reported on, and nothing is lost without a word.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.model.errors import FileProblem
from penstock.model.telemetry import REQUIRED, VERSION, RecordKind, arrow_schema
from penstock.pipeline.patterns import literal

CLOCK_TICK_S = 1e-6  # times of one clock may be out of order by as much: they are read and rounded one by one
READERS = 4  # threads that check files; decoding leaves Python's lock alone

IN_ORDER = {RecordKind.HOP: (("emitted", "sent"), ("arrived", "started"), ("started", "finished"))}
"""By kind, the pairs of times on one clock of which the second cannot come before the first."""

NOT_NEGATIVE = (
    "bytes", "interval", "processed", "given", "queue", "waiting_out", "busy", "blocked", "lag", "memory_mb",
    "capacity_cpu", "capacity_mb", "error",
)  # fmt: skip

FARTHEST = 4e9
"""The largest time, duration or amount of a sound record: beyond a century, and a sum of many still is a number."""

COUNTS = ("epoch", "incarnation", "source_incarnation", "bytes", "processed", "given", "queue", "waiting_out")
MOST = 10**12
"""The largest count of a sound record: many of them can be added up."""

FASTEST = 0.5  # s a second that a clock drifts: clocks that are worse are none
SHORTEST_S = 1e-9  # of an interval, by which amounts are divided

ORIGIN = ("file", "path", "row", "written")
"""Where a record came from: beside the columns of a record, until it has been judged."""

UNREADABLE = "unreadable"

BUSY = """case when version = 1 and kind = 'machine' and not emulated and capacity_cpu > 0
    then busy / capacity_cpu else busy end"""
"""The share of its machine that a worker used, also of telemetry that tells cores in its place."""

_PLACED = ("string", "long", "long")  # the types of an origin behind the file's name

_PHYSICAL = {pa.string(): "BYTE_ARRAY", pa.int64(): "INT64", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}


class Ingested(NamedTuple):
    """What came in, parted."""

    good: DataFrame
    quarantined: DataFrame  # the same columns and `reason`


def record_schema() -> StructType:
    """Return the schema of telemetry as Spark reads it, every column nullable."""
    return StructType([StructField(field.name, field.dataType) for field in from_arrow_schema(arrow_schema())])


def read_telemetry(spark: SparkSession, folder: Path) -> Ingested:
    """Return the records in the Parquet files of a folder, and a row of quarantine for each file that is unreadable.

    Every file is decoded once before Spark is given it, because Spark gives up a whole job for one bad page. Files
    whose names begin with `_` or `.` are still being written and are left out. Columns that a file lacks are null.
    """
    records, unreadable = read_files(spark, telemetry_files(folder))
    return Ingested(records.drop(*ORIGIN), unreadable.drop(*ORIGIN))


def telemetry_files(folder: Path) -> list[Path]:
    """Return the files of telemetry in a folder, in their order; refuse one that has none."""
    if not folder.is_dir():
        raise FileProblem(f"{folder}: is not a folder; name the folder of a run or of its telemetry")
    files = files_below(folder, "*.parquet")
    if not files:
        raise FileProblem(f"{folder}: holds no telemetry (*.parquet); run an application first, or name another folder")
    return files


def files_below(folder: Path, pattern: str) -> list[Path]:
    """Return the files whose names fit a pattern, in their order; those still being written are left out."""
    return sorted(path for path in folder.glob(pattern) if path.is_file() and path.name[0] not in "_.")


def read_files(spark: SparkSession, files: Sequence[Path]) -> Ingested:
    """Return the records in files, each with its origin, and a row of quarantine for each file that is unreadable.

    The origin is the file's name and path, the record's row there, and when the file was written, in microseconds.
    """
    with ThreadPoolExecutor(READERS) as pool:
        problems = dict(zip(files, pool.map(_problem, files), strict=True))
    schema = record_schema()
    nulls = [sf.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    sound = [literal(path) for path, problem in problems.items() if problem is None]
    bad = [(path.name, f"file {path.name} {UNREADABLE}: {problem}") for path, problem in problems.items() if problem]
    columns = {
        name: pa.array([row[place] for row in bad], pa.string()) for place, name in enumerate(("file", "reason"))
    }
    told = spark.createDataFrame(pa.table(columns))
    no_place = [sf.lit(None).cast(kind).alias(name) for name, kind in zip(ORIGIN[1:], _PLACED, strict=True)]
    nowhere = told.select(*nulls, "file", *no_place, "reason")
    if not sound:
        return Ingested(nowhere.drop("reason").limit(0), nowhere)
    told_by = ("_metadata.file_name", "_metadata.file_path", "_metadata.row_index")
    origin = [sf.col(where).alias(name) for where, name in zip(told_by, ORIGIN, strict=False)]
    origin.append(sf.unix_micros("_metadata.file_modification_time").alias("written"))
    return Ingested(spark.read.schema(schema).parquet(*sound).select(*schema.names, *origin), nowhere)


def ingest(raw: DataFrame) -> Ingested:
    """Part records into good ones and those to quarantine. Also for streams: it looks at one row at a time."""
    return parted(raw.withColumn("reason", reason()))


def parted(judged: DataFrame) -> Ingested:
    """Part records that have been judged."""
    good = judged.where(sf.col("reason").isNull()).drop("reason").withColumn("busy", sf.expr(BUSY))
    return Ingested(good, judged.where(sf.col("reason").isNotNull()))


def reason() -> Column:
    """Return what is wrong with a record, the first thing found; null for a good one."""
    kinds = ", ".join(f"'{kind}'" for kind in RecordKind)
    rules = [
        ("kind is null", "'no kind'"),
        (f"kind not in ({kinds})", "concat('unknown kind ', kind)"),
        (
            f"version is null or version not between 1 and {VERSION}",
            "concat('version ', coalesce(string(version), 'none'))",
        ),
        ("run = ''", "'run is empty'"),
        *(
            (condition, f"'{text}'")
            for condition, text in (*_missing(), *_not_finite(), *_out_of_order(), *_negative(), *_wild())
        ),
    ]
    # One text to parse is built far faster than a hundred columns by calls. Nearly all records are sound, and told to
    # be so by a few tests instead of by all.
    unsound = " ".join(f"when {condition} then {text}" for condition, text in rules)
    return sf.expr(f"case when {_sound()} then null {unsound} end")


def _sound() -> str:
    """Return a test that only good records pass, in which no rule is spelt out that others imply."""
    always = " and ".join(f"{column.name} is not null" for column in arrow_schema() if not column.nullable)
    kinds = " ".join(
        f"when '{kind}' then "
        + " and ".join(
            [f"{name} is not null" for name in names]
            + [f"{second} >= {first} - {CLOCK_TICK_S:.9f}D" for first, second in IN_ORDER.get(RecordKind(kind), ())]
        )
        for kind, names in REQUIRED.items()
    )
    floats = [column.name for column in arrow_schema() if column.type == pa.float64()]
    largest = f"greatest({', '.join(f'abs({name})' for name in floats)})"  # what is not a number is greater than all
    least = f"coalesce(least({', '.join((*NOT_NEGATIVE, *COUNTS))}), 0D)"
    return (
        f"{always} and version between 1 and {VERSION} and run != '' and case kind {kinds} else false end "
        f"and {largest} <= {FARTHEST:.0f}D and {least} >= 0D and greatest({', '.join(COUNTS)}) <= {MOST} "
        f"and coalesce(interval, 1D) >= {SHORTEST_S:.12f}D and abs(coalesce(drift, 0D)) <= {FASTEST}D"
    )


def _missing() -> Iterator[tuple[str, str]]:
    for column in arrow_schema():
        if not column.nullable:
            yield f"{column.name} is null", f"{column.name} is missing"
    for kind, names in REQUIRED.items():
        for name in names:
            yield f"kind = '{kind}' and {name} is null", f"{kind} without {name}"


def _not_finite() -> Iterator[tuple[str, str]]:
    for column in arrow_schema():
        if column.type == pa.float64():
            infinite = f"isnan({column.name}) or abs({column.name}) = double('infinity')"
            yield infinite, f"{column.name} is not a finite number"


def _out_of_order() -> Iterator[tuple[str, str]]:
    for kind, pairs in IN_ORDER.items():
        for first, second in pairs:
            yield f"kind = '{kind}' and {second} < {first} - {CLOCK_TICK_S:.9f}D", f"{second} before {first}"


def _negative() -> Iterator[tuple[str, str]]:
    return ((f"{name} < 0", f"{name} is negative") for name in dict.fromkeys((*NOT_NEGATIVE, *COUNTS)))


def _wild() -> Iterator[tuple[str, str]]:
    """Give numbers that cannot be measured: sums, rates and dates of them are beyond a computer's numbers."""
    for column in arrow_schema():
        if column.type == pa.float64():
            yield f"abs({column.name}) > {FARTHEST:.0f}D", f"{column.name} is too large"
    for name in COUNTS:
        yield f"{name} > {MOST}", f"{name} is too large"
    yield f"abs(drift) > {FASTEST}D", "drift is too large"
    yield f"interval < {SHORTEST_S:.12f}D", "interval is too short"


def _problem(path: Path) -> str | None:
    """Say why Spark could not read a file, None where it can."""
    if ":" in path.name:
        return "Spark reads no file that has a colon in its name"
    try:
        with pq.ParquetFile(path) as file:
            problem = _other_type(file)
            if problem is None:
                for _ in file.iter_batches(columns=[n for n in arrow_schema().names if n in file.schema_arrow.names]):
                    pass  # decoding is the check
            return problem
    except (pa.ArrowException, OSError) as error:
        return " ".join(str(error).split()).rstrip(".")


def _other_type(file: pq.ParquetFile) -> str | None:
    expected = {field.name: _PHYSICAL[field.type] for field in arrow_schema()}
    found = [file.schema.column(number) for number in range(len(file.schema.names))]
    for column in found:
        name, _, nested = column.path.partition(".")
        if name not in expected:
            continue
        plain = column.logical_type.type in ("NONE", "STRING") and not nested
        if not plain or column.physical_type != expected[name]:
            return f"column {name} is {file.schema_arrow.field(name).type}, expected {arrow_schema().field(name).type}"
    return None
