"""Batches of a streaming DataFrame, landed as files: what the source `Landed` reads.

Every batch becomes one file of JSON lines named by the batch's number, and is never written twice: Spark may hand a
batch over again after a failure, but always the same rows under the same number. So each row lands exactly once, for as
long as the folder keeps its checkpoint. Names that begin with `_` are not data; `_END` says that no file will follow.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from penstock.api.sources.landed import END, batch_name
from penstock.model.errors import FileProblem

CHECKPOINT = "_checkpoint"


def land(stream: DataFrame, folder: str | Path) -> StreamingQuery:
    """Start a query that writes every batch of a stream to a folder of the driver's; one JSON object a row.

    A folder that holds an unfinished landing of the same stream is gone on with. Columns that are null are written as
    null, binary ones in base64, times in ISO 8601.
    """
    place = Path(folder).resolve()
    _make(place)

    def write(batch: DataFrame, number: int) -> None:
        landed = place / batch_name(number)
        if not landed.exists():
            text = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
            _publish(landed, (row[0] for row in batch.select(text).toLocalIterator()))

    checkpoint = f"file:{place / CHECKPOINT}"  # not as a URI: Spark takes %20 for three characters of a name
    return stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def finish_landing(folder: str | Path) -> None:
    """Say that no batch will follow; call it when the query has ended."""
    _publish(Path(folder) / END, ())


def _make(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(f"{place}: cannot be made, {error.strerror}; choose another place") from None
    if (place / END).exists():
        raise FileProblem(f"{place}: this landing was finished, its readers are done; choose another folder")
    if not (place / CHECKPOINT).exists() and any(place.glob("batch-*.jsonl")):
        # Numbers would begin at 0 again, and new batches pass for landed ones.
        raise FileProblem(f"{place}: holds batches but not their {CHECKPOINT}; choose an empty folder")


def _publish(path: Path, lines: Iterable[str]) -> None:
    """Write a file that appears complete or not at all, also when the machine stops."""
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
