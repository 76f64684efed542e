"""Ingest: telemetry files become one table of valid records, and a quarantine of the others with the reason for each.

A file that cannot be read, or has other column types, becomes one row of the quarantine; a record that breaks the
schema is quarantined whole. So a run that ended badly can still be reported on, and no data is dropped silently.
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

CLOCK_TICK_S = 1e-6  # by which times of one clock may be out of order: they are read and rounded one by one
READERS = 4  # threads that check files; decoding releases Python's lock

IN_ORDER = {RecordKind.HOP: (("emitted", "sent"), ("arrived", "started"), ("started", "finished"))}
"""By kind, pairs of times on one clock whose second cannot precede the first."""

NOT_NEGATIVE = (
    "bytes", "interval", "processed", "given", "queue", "waiting_out", "busy", "blocked", "lag", "memory_mb",
    "capacity_cpu", "capacity_mb", "error",
)  # fmt: skip

FARTHEST = 4e9
"""Maximum time, duration or amount in a valid record: more than a century, and sums of many still are finite."""

COUNTS = ("epoch", "incarnation", "source_incarnation", "bytes", "processed", "given", "queue", "waiting_out")
MOST = 10**12
"""Maximum count in a valid record: many of them can be added."""

FASTEST = 0.5  # maximum drift of a clock in seconds per second; anything more is an error
SHORTEST_S = 1e-9  # minimum interval, by which amounts are divided

ORIGIN = ("file", "path", "row", "written")
"""Origin of a record: extra columns until it is accepted or rejected."""

UNREADABLE = "unreadable"

BUSY = """case when version = 1 and kind = 'machine' and not emulated and capacity_cpu > 0
    then busy / capacity_cpu else busy end"""
"""Used share of a worker's machine; version 1 recorded cores instead."""

_PLACED = ("string", "long", "long")  # types of the origin's columns after the file's name

_PHYSICAL = {pa.string(): "BYTE_ARRAY", pa.int64(): "INT64", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}


class Ingested(NamedTuple):
    """Records, separated into valid and quarantined ones."""

    good: DataFrame
    quarantined: DataFrame  # the same columns and `reason`


def record_schema() -> StructType:
    """Return the schema of telemetry as Spark reads it, every column nullable."""
    return StructType([StructField(field.name, field.dataType) for field in from_arrow_schema(arrow_schema())])


def read_telemetry(spark: SparkSession, folder: Path) -> Ingested:
    """Return the records in the Parquet files of a folder, and a row of quarantine for each unreadable file.

    Every file is decoded once before Spark reads it, because Spark aborts a whole job for one bad page. Files whose
    names start with `_` or `.` are still being written and are ignored. Columns that a file lacks are null.
    """
    records, unreadable = read_files(spark, telemetry_files(folder))
    return Ingested(records.drop(*ORIGIN), unreadable.drop(*ORIGIN))


def telemetry_files(folder: Path) -> list[Path]:
    """Return the telemetry files in a folder, in order; raises if there are none."""
    if not folder.is_dir():
        raise FileProblem(f"{folder}: is not a folder; use the folder of a run or of its telemetry")
    files = files_below(folder, "*.parquet")
    if not files:
        raise FileProblem(f"{folder}: contains no telemetry (*.parquet); use another folder, or run an application")
    return files


def files_below(folder: Path, pattern: str) -> list[Path]:
    """Return the files whose names match a pattern, in order, without those still being written."""
    return sorted(path for path in folder.glob(pattern) if path.is_file() and path.name[0] not in "_.")


def read_files(spark: SparkSession, files: Sequence[Path]) -> Ingested:
    """Return the records in files, each with its origin, and a row of quarantine for each unreadable file.

    The origin is the file's name and path, the record's row, and when the file was written, in microseconds.
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
    unreadable = spark.createDataFrame(pa.table(columns))
    no_place = [sf.lit(None).cast(kind).alias(name) for name, kind in zip(ORIGIN[1:], _PLACED, strict=True)]
    nowhere = unreadable.select(*nulls, "file", *no_place, "reason")
    if not sound:
        return Ingested(nowhere.drop("reason").limit(0), nowhere)
    told_by = ("_metadata.file_name", "_metadata.file_path", "_metadata.row_index")
    origin = [sf.col(where).alias(name) for where, name in zip(told_by, ORIGIN, strict=False)]
    origin.append(sf.unix_micros("_metadata.file_modification_time").alias("written"))
    return Ingested(spark.read.schema(schema).parquet(*sound).select(*schema.names, *origin), nowhere)


def ingest(raw: DataFrame) -> Ingested:
    """Separate valid records from others. Also for streams, because each row is independent."""
    return split_records(raw.withColumn("reason", rejection_reason()))


def split_records(judged: DataFrame) -> Ingested:
    """Separate records by their reason for rejection."""
    good = judged.where(sf.col("reason").isNull()).drop("reason").withColumn("busy", sf.expr(BUSY))
    return Ingested(good, judged.where(sf.col("reason").isNotNull()))


def rejection_reason() -> Column:
    """Return the first problem of a record; null for a valid one."""
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
    # Parsing one text is far faster than building a hundred columns by calls. Nearly all records are valid, and a few
    # tests show that instead of all rules.
    unsound = " ".join(f"when {condition} then {text}" for condition, text in rules)
    return sf.expr(f"case when {_sound()} then null {unsound} end")


def _sound() -> str:
    """Return a test that only valid records pass, without rules that others imply."""
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
    largest = f"greatest({', '.join(f'abs({name})' for name in floats)})"  # NaN is greater than all numbers
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
    """Yield rules for implausible numbers, whose sums, rates and dates would overflow."""
    for column in arrow_schema():
        if column.type == pa.float64():
            yield f"abs({column.name}) > {FARTHEST:.0f}D", f"{column.name} is too large"
    for name in COUNTS:
        yield f"{name} > {MOST}", f"{name} is too large"
    yield f"abs(drift) > {FASTEST}D", "drift is too large"
    yield f"interval < {SHORTEST_S:.12f}D", "interval is too short"


def _problem(path: Path) -> str | None:
    """Return why Spark could not read a file; None if it can."""
    if ":" in path.name:
        return "Spark reads no file with a colon in its name"
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
