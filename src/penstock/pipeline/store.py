"""The store: the pipeline's tables in a folder, replaced atomically.

A table is Parquet, with a folder for each *part*, in which rows of a run are together. A part becomes valid when the
manifest names it, and the manifest is one small file that is replaced atomically. So a job that is killed leaves the
previous valid tables, and parts without a reference, which are deleted later. Records, quarantine and arrivals grow by
a part at a time; in derived tables each run has its rows in one part. A part that has been replaced stays until the
next one is started, so that a reader that has just opened it can finish.

Paths are local or shared POSIX ones.
"""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from penstock.model.decoding import decode_json
from penstock.model.errors import FileProblem, UnknownName, choices
from penstock.model.files import make_folder, write_whole
from penstock.pipeline.manifest import MANIFEST, Manifest, read_manifest, run_of
from penstock.pipeline.patterns import literal

GROWING = ("records", "quarantine", "arrivals")
DERIVED = (
    "hops", "tuples", "features", "task_windows", "edge_windows", "shares", "reports/latency", "reports/components",
    "reports/edges", "reports/stragglers", "reports/slow_machines", "reports/skew",
)  # fmt: skip


class Store:
    """The tables in one folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder

    def manifest(self) -> Manifest | None:
        """Return the manifest; None if nothing was ever published."""
        return read_manifest(self.folder)

    def publish(self, manifest: Manifest) -> None:
        """Make the parts of a manifest valid, atomically."""
        write_whole(self.folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")

    def write(self, frame: DataFrame, table: str, part: str) -> DataFrame:
        """Write a part, not yet valid, and return it."""
        place = self.place(table, part)
        whole = table.startswith(("reports/", "_"))  # small tables: one file per run would be too many
        by = () if whole else ("run",)
        frame.write.mode("overwrite").partitionBy(*by).parquet(str(place))
        return self._read(place, frame.schema)

    def place(self, table: str, part: str) -> Path:
        """Return the folder of a part."""
        return self.folder / table / part

    def table(self, name: str, manifest: Manifest) -> DataFrame:
        """Return the valid rows of a table."""
        schema = StructType.fromJson(decode_json(manifest.schemas[name]))
        if name in GROWING:
            return self.union([self._read(self.place(name, part), schema) for part in manifest.taken], schema)
        runs: dict[str, list[str]] = {}
        for run, part in manifest.derived.items():
            runs.setdefault(part, []).append(run)
        frames = {part: self._read(self.place(name, part), schema) for part in sorted(runs)}
        if len(frames) > 1:  # a part may contain runs that have been derived again since
            frames = {part: frame.where(sf.col("run").isin(runs[part])) for part, frame in frames.items()}
        return self.union(list(frames.values()), schema)

    def union(self, frames: Sequence[DataFrame], schema: StructType) -> DataFrame:
        """Return the rows of all frames; an empty frame if there are none."""
        if not frames:
            return self._spark.createDataFrame([], schema)
        whole, *others = frames
        for frame in others:
            whole = whole.unionByName(frame)
        return whole

    def files(self, table: str, parts: Sequence[str]) -> list[Path]:
        """Return the files of parts of a table."""
        return [path for part in parts for path in self.place(table, part).rglob("*.parquet")]

    def runs(self, table: str, part: str) -> list[str]:
        """Return the runs with rows in a part."""
        return sorted(run_of(path) for path in self.place(table, part).glob("run=*"))

    def sweep(self, manifest: Manifest) -> None:
        """Delete all parts that the manifest does not name."""
        for table in (*GROWING, *DERIVED):
            named = manifest.taken if table in GROWING else manifest.derived.values()
            for place in sorted((self.folder / table).glob("*")):
                if place.name not in named:
                    shutil.rmtree(place, ignore_errors=True)
                elif table in DERIVED:
                    for path in place.glob("run=*"):
                        if manifest.derived.get(run_of(path)) != place.name:
                            shutil.rmtree(path, ignore_errors=True)

    def _read(self, place: Path, schema: StructType) -> DataFrame:
        # An explicit schema keeps a run named 007 from becoming the number 7.
        return self._spark.read.schema(schema).parquet(literal(place)).select(*schema.names)


def read_table(spark: SparkSession, output: Path, name: str) -> DataFrame:
    """Return a table of the pipeline: `hops`, `tuples`, `task_windows`, `reports/components` …"""
    store = Store(spark, Path(output))
    manifest = store.manifest()
    if manifest is None:
        raise FileProblem(f"{output}: contains no tables; create them with: penstock models tables --output {output}")
    if name not in manifest.schemas:
        raise UnknownName("table", f"there is no {name!r}; choose from {choices(manifest.schemas)}")
    return store.table(name, manifest)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this job; other writers are rejected."""
    make_folder(folder)
    with FileProblem.on(folder, "cannot be written", "choose another folder"):
        file = (folder / "_lock").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileProblem(f"{folder}: another pipeline writes there; wait for it, or choose another") from None
        yield
