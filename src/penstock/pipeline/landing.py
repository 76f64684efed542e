"""Write batches of a streaming DataFrame as files, which the source `Landed` reads.

Every batch becomes one file of JSON lines named by the batch's number, and is written once: Spark may repeat a batch
after a failure, but always with the same rows and number. So each row lands exactly once as long as the folder keeps
its checkpoint. Names that start with `_` are not data; `_END` means that no more files will follow.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from penstock.api.sources.landed import END, batch_name
from penstock.model.errors import FileProblem
from penstock.model.files import make_folder

CHECKPOINT = "_checkpoint"


def land(stream: DataFrame, folder: str | Path) -> StreamingQuery:
    """Start a query that writes every batch of a stream to a folder of the driver; one JSON object per row.

    An unfinished landing of the same stream in the folder is continued. Null columns are written as null, binary ones
    in base64, times in ISO 8601.
    """
    place = Path(folder).resolve()
    _make(place)

    def write(batch: DataFrame, number: int) -> None:
        landed = place / batch_name(number)
        if not landed.exists():
            text = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
            _publish(landed, (row[0] for row in batch.select(text).toLocalIterator()))

    checkpoint = f"file:{place / CHECKPOINT}"  # not a URI: Spark does not decode %20
    return stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def finish_landing(folder: str | Path) -> None:
    """Mark the landing as complete; call it when the query has ended."""
    _publish(Path(folder) / END, ())


def _make(place: Path) -> None:
    make_folder(place)
    if (place / END).exists():
        raise FileProblem(f"{place}: this landing is complete and its readers have ended; choose another folder")
    if not (place / CHECKPOINT).exists() and any(place.glob("batch-*.jsonl")):
        # Numbers would start at 0 again, and new batches would be taken for landed ones.
        raise FileProblem(f"{place}: contains batches but not their {CHECKPOINT}; choose an empty folder")


def _publish(path: Path, lines: Iterable[str]) -> None:
    """Write a file atomically and durably."""
    unfinished = path.with_name(f"_{path.name}.part")
    with unfinished.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
