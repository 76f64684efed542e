"""The pipeline as one job: telemetry in, tables out, as a batch or as a stream, with the same result.

The work has two halves. **Taking**: files are checked and read, and each record is added to `records`, or to
`quarantine` with the reason. **Deriving**: hops, tuples, windows, shares and reports are recomputed for every run with
new records. Both modes use the same functions, and each half is published atomically, so a job that is killed continues
from the last step and nothing is lost or doubled.

A batch takes all files at once and replaces existing tables. A stream uses Structured Streaming to find new files: a
micro-batch is a list of names stored in the checkpoint, so a file is taken exactly once, and a repeated micro-batch is
recognised by its number. A stream derives once when all files have been taken; if it follows a folder until it is
stopped, it derives after each micro-batch.

Cost of a stream: a micro-batch reads its own files and the identities of earlier records within the lateness. Deriving
reads all records of the affected runs, because a late record may complete a tuple or a window, or reveal a clock's
offset. So following one run takes more time, not memory, the longer it lasts: every step reads and writes files, and
Spark spills what it sorts. If that matters, trigger less often.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructType

from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.features import WINDOW_S
from penstock.pipeline import summaries
from penstock.pipeline.arrivals import (
    LATENESS_S,
    check_records,
    find_duplicates,
    find_newest,
    find_shared,
    list_identities,
    mark_duplicates,
)
from penstock.pipeline.clocks import clocks as clock_table
from penstock.pipeline.hops import hops as make_hops
from penstock.pipeline.ingest import UNREADABLE, files_below, read_files, record_schema
from penstock.pipeline.manifest import Manifest
from penstock.pipeline.patterns import literal
from penstock.pipeline.report import telemetry_folder
from penstock.pipeline.small_tables import as_literal, collect_tables, partitions_for
from penstock.pipeline.store import Store, locked, read_table
from penstock.pipeline.tuples import tuples as make_tuples
from penstock.pipeline.windows import compute_features, compute_shares, edge_windows, find_starts, task_windows

__all__ = ["SETTINGS", "Summary", "check", "read_table", "run_pipeline"]

FILES = 1000  # maximum per micro-batch
BRIEF_BYTES = 20_000_000  # of telemetry, some 250,000 records: beyond that, Java's second compiler pays off
CHECKPOINT = "_checkpoint"
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.codegen.hugeMethodLimit": "8000",  # Java never compiles longer methods
    "spark.sql.execution.useObjectHashAggregateExec": "false",  # beyond a few groups it sorts anyway
}
"""Spark settings for sessions of the pipeline."""

_NAMES = "path string, modificationTime timestamp, length long, content binary"
_KEPT_FOR_EVER = "36500d"  # by default Spark ignores files that are a week older than the newest

Step = Callable[[str], None]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a store after a job, and the duration of the job."""

    runs: int
    records: int
    quarantined: dict[str, int]  # by reason, the most frequent first
    hops: int
    tuples: int
    task_windows: int
    edge_windows: int
    seconds: float


def run_pipeline(
    spark: SparkSession,
    input: Path,  # noqa: A002  as the command calls it
    output: Path,
    *,
    window_s: float = WINDOW_S,
    stream: bool = False,
    follow: bool = False,
    lateness_s: float = LATENESS_S,
    files_per_batch: int = FILES,
    step: Step = lambda _: None,
) -> Summary:
    """Compute all tables of the telemetry in a folder: of one run, of its telemetry, or of many runs below it.

    stream: take only new files, as a stream that ends after the last one. follow: continue until interrupted. step:
    called with the name of each step; an exception from it ends the job there, like a kill.
    """
    started = time.monotonic()
    folder, below = check(Path(input), window_s, lateness_s, follow)
    refuse_within(Path(output), Path(input), folder)
    mode = "stream" if stream or follow else "batch"
    wanted = Manifest(mode=mode, input=str(folder.resolve()), window_s=window_s, lateness_s=lateness_s)
    with locked(Path(output)):
        job = _Job(spark, Store(spark, Path(output).resolve()), wanted, step)
        if mode == "batch":
            job.run_batch(_files(folder, below))
        else:
            job.run_stream(_pattern(folder.resolve(), below), files_per_batch, follow)
        return job.summary(time.monotonic() - started)


class _Job:
    """One run of the pipeline into one store."""

    def __init__(self, spark: SparkSession, store: Store, wanted: Manifest, step: Step) -> None:
        self._spark = spark
        self._store = store
        self._step = step
        self._problem: Exception | None = None  # that ended a micro-batch
        self._manifest = self._continued(wanted)

    def _continued(self, wanted: Manifest) -> Manifest:
        """Return the manifest to continue from; a stream must have the settings it was started with."""
        there = self._store.manifest()
        if there is None:
            return wanted
        where = self._store.folder
        if there.mode != wanted.mode:
            raise FileProblem(f"{where}: contains the tables of a {there.mode}; use another folder for a {wanted.mode}")
        if wanted.mode == "batch":
            return msgspec.structs.replace(wanted, parts=there.parts)
        for name in ("input", "window_s", "lateness_s"):
            own, asked = getattr(there, name), getattr(wanted, name)
            if own != asked:
                raise FileProblem(f"{where}: was started with {name} {own}, not {asked}; use that, or another folder")
        if there.taken and not (where / CHECKPOINT).is_dir():
            raise FileProblem(f"{where}: contains tables but not their {CHECKPOINT}; use an empty folder")
        return there

    def run_batch(self, files: Sequence[Path]) -> None:
        """Take all files and derive; publish both together."""
        self._derive(self._take(self._manifest, files))
        self._sweep()

    def run_stream(self, place: str, files_per_batch: int, follow: bool) -> None:
        """Take new files and publish each micro-batch; derive and publish."""
        if follow and self._manifest.touched:
            self._derive(self._manifest)
        names = (
            self._spark.readStream.format("binaryFile")
            .schema(_NAMES)
            .options(pathGlobFilter="*.parquet", maxFilesPerTrigger=files_per_batch, maxFileAge=_KEPT_FOR_EVER)
            .load(place)
            .select("path")  # contents are not read
        )
        writer = names.writeStream.foreachBatch(lambda batch, number: self._batch(batch, number, follow))
        writer = writer.option("checkpointLocation", f"file:{self._store.folder / CHECKPOINT}")  # not URL-encoded
        every = {"processingTime": f"{self._manifest.window_s} seconds"} if follow else {"availableNow": True}
        query = writer.trigger(**every).start()
        try:
            query.awaitTermination()
        except Exception:
            if self._problem is not None:
                raise self._problem from None
            raise
        finally:
            query.stop()
        if not self._manifest.taken:
            raise FileProblem(f"{self._manifest.input}: the stream found no telemetry there; run it as a batch")
        if self._manifest.touched or not self._manifest.derived:
            self._derive(self._manifest)
        self._sweep()

    def summary(self, seconds: float) -> Summary:
        """Count the rows of the store."""
        self._step("counting")
        rows = {
            name: self._store.table(name, self._manifest)
            for name in ("records", "hops", "tuples", "task_windows", "edge_windows")
        }
        counts = {name: frame.agg(sf.count("*").alias("count")) for name, frame in rows.items()}
        quarantined = self._store.table("quarantine", self._manifest)
        kind = sf.when(sf.col("reason").contains(f" {UNREADABLE}: "), f"{UNREADABLE} file").otherwise(sf.col("reason"))
        counts["quarantined"] = quarantined.groupBy(kind.alias("reason")).agg(sf.count("*").alias("count"))
        found = {name: table.to_pylist() for name, table in collect_tables(counts).items()}
        reasons = sorted(found.pop("quarantined"), key=lambda row: (-row["count"], row["reason"]))
        return Summary(
            runs=len(self._manifest.derived),
            quarantined={row["reason"]: row["count"] for row in reasons},
            seconds=seconds,
            **{name: table[0]["count"] for name, table in found.items()},
        )

    def _batch(self, batch: DataFrame, number: int, follow: bool) -> None:
        if number <= self._manifest.batch:
            return  # published, but the job stopped before Spark recorded that
        try:
            files = [Path(row["path"].removeprefix("file:")) for row in batch.collect()]
            taken = self._take(self._manifest, files)
            self._publish(msgspec.structs.replace(taken, batch=number))
            if follow:
                self._derive(self._manifest)
        except Exception as problem:
            self._problem = problem
            raise

    def _take(self, manifest: Manifest, files: Sequence[Path]) -> Manifest:
        """Check the records of files, and write them to a new part of the growing tables."""
        with partitions_for(self._spark, files):
            return self._take_parts(manifest, files)

    def _take_parts(self, manifest: Manifest, files: Sequence[Path]) -> Manifest:
        store, part = self._store, manifest.next_part
        self._step(f"checking {len(files):,} files")
        records, unreadable = read_files(self._spark, sorted(files))
        came = store.write(find_newest(records), "arrivals", part)
        earlier = [store.table("arrivals", manifest)] if manifest.taken else []
        known = None
        if earlier:
            oldest = came.agg(sf.min("oldest")).collect()[0][0]
            known = list_identities(store.table("records", manifest), float("inf") if oldest is None else oldest)
        self._step("finding duplicates")
        rows = check_records(
            records, store.union([came, *earlier], came.schema), manifest.lateness_s, manifest.window_s
        )
        alike = store.write(find_shared(records, known), "_work/shared", part)
        again = store.write(find_duplicates(rows, alike), "_work/doubles", part)
        self._step("writing records")
        self._part(mark_duplicates(rows, again).unionByName(unreadable), part)
        kept = record_schema()
        bad = StructType([*kept.fields]).add("file", StringType()).add("reason", StringType())
        return msgspec.structs.replace(
            manifest,
            parts=manifest.parts + 1,
            taken=[*manifest.taken, part],
            touched=sorted({*manifest.touched, *store.runs("records", part)}),
            schemas=manifest.schemas
            | {"records": kept.json(), "quarantine": bad.json(), "arrivals": came.schema.json()},
        )

    def _part(self, rows: DataFrame, part: str) -> None:
        """Write valid records to one table and the others to another, in one pass."""
        work = self._store.folder / "_work" / "parted"
        parted = rows.drop("path", "row", "written").withColumn("good", sf.col("reason").isNull())
        parted.write.mode("overwrite").partitionBy("good", "run").parquet(str(work))
        self._step("placing records")
        for good, table in ((True, "records"), (False, "quarantine")):
            place = self._store.place(table, part)
            shutil.rmtree(place, ignore_errors=True)
            (work / f"good={str(good).lower()}").mkdir(exist_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            (work / f"good={str(good).lower()}").rename(place)
        shutil.rmtree(work.parent, ignore_errors=True)

    def _derive(self, manifest: Manifest) -> None:
        """Compute the derived tables of the affected runs, and publish them."""
        self._sweep(keeping=manifest)
        with partitions_for(self._spark, self._store.files("records", manifest.taken)):
            self._publish(self._derived(manifest))

    def _derived(self, manifest: Manifest) -> Manifest:
        store, part, window_s = self._store, manifest.next_part, manifest.window_s
        good = store.table("records", manifest).where(sf.col("run").isin(manifest.touched))
        schemas = dict(manifest.schemas)

        def written(table: str, frame: DataFrame) -> DataFrame:
            self._step(f"making {table}")
            schemas[table] = frame.schema.json()
            return store.write(frame, table, part)

        clocks = self._small(clock_table(good))
        starts = self._small(find_starts(good, clocks))
        hops = written("hops", make_hops(good, clocks))
        tuples = written("tuples", make_tuples(hops, good, clocks))
        seen = written("features", compute_features(good, clocks, starts, window_s))
        written("task_windows", task_windows(hops, seen, starts, window_s))
        written("edge_windows", edge_windows(hops, seen, starts, window_s))
        written("shares", compute_shares(hops, starts, window_s))
        tails = self._small(summaries.task_tails(hops))
        self._step("making reports")
        reports = summaries.run_reports(hops, tuples, good, tails)
        for table, found in collect_tables(reports).items():
            written(f"reports/{table}", as_literal(self._spark, found, reports[table]))
        derived = manifest.derived | dict.fromkeys(manifest.touched, part)
        done = {"derived": derived, "touched": [], "schemas": schemas, "parts": manifest.parts + 1}
        return msgspec.structs.replace(manifest, **done)

    def _small(self, frame: DataFrame) -> DataFrame:
        """Compute a small table once instead of in every step that joins it."""
        return as_literal(self._spark, frame.toArrow(), frame)

    def _publish(self, manifest: Manifest) -> None:
        self._step("publishing")
        self._store.publish(manifest)
        self._manifest = manifest
        self._step("published")

    def _sweep(self, keeping: Manifest | None = None) -> None:
        """Delete invalid parts, except those about to be published."""
        self._step("sweeping")
        valid = self._store.manifest()
        if valid is not None and keeping is not None:
            valid = msgspec.structs.replace(valid, taken=[*valid.taken, *keeping.taken])
        if valid is not None:
            self._store.sweep(valid)


def check(folder: Path, window_s: float, lateness_s: float, follow: bool = False) -> tuple[Path, str]:
    """Validate the inputs of a job; return the telemetry folder and a pattern for the folders of runs below it.

    The pattern is empty unless the folder contains many runs. The folder may be empty only if it is followed.
    """
    if not 0 < window_s < float("inf"):
        raise InvalidInput("window", f"expected seconds > 0, got {window_s:g}; change --window")
    if not lateness_s >= 0:
        raise InvalidInput("lateness", f"expected seconds ≥ 0, got {lateness_s:g}; change --lateness")
    place = telemetry_folder(folder)
    many = place == folder and not files_below(folder, "*.parquet") and any(folder.glob("*/telemetry"))
    where = (folder, "*/telemetry") if many else (place, "")
    literal(place.resolve())  # raises for paths that Spark cannot read
    if not follow:
        _files(*where)
    return where


def is_small(folder: Path, below: str) -> bool:
    """Return whether a job on the telemetry found by `check` is short."""
    return sum(path.stat().st_size for path in _files(folder, below)) < BRIEF_BYTES


def refuse_within(output: Path, *read: Path) -> None:
    """Reject an output folder in or below an input folder: tables would lie among the files they are made of."""
    literal(output.resolve())  # tables are read again to derive others
    for folder in read:
        if output.resolve().is_relative_to(folder.resolve()):
            raise FileProblem(f"{output}: tables cannot be written to {folder}, which is read; choose another folder")


def _pattern(folder: Path, below: str) -> str:
    """Return the pattern of the folders in which a stream looks for files."""
    if not below:
        return literal(folder)
    if colon := next((path for path in sorted(folder.iterdir()) if ":" in path.name), None):
        problem = "Spark cannot follow a folder of runs if a name contains a colon"
        raise FileProblem(f"{colon}: {problem}; rename it, or omit --stream and --follow")
    return f"{literal(folder)}/{below}"


def _files(folder: Path, below: str) -> list[Path]:
    found = files_below(folder, f"{below}/*.parquet" if below else "*.parquet")
    files = [path for path in found if path.stat().st_size]  # Spark's streams ignore empty files
    if not files:
        raise FileProblem(f"{folder}: contains no telemetry (*.parquet); use another folder, or run an application")
    return files
