"""Structured Streaming's real-time mode, in the best case that PySpark alone can run.

Its one documented source is Kafka, whose connector is not in PySpark and which needs a broker. It rejects the built-in
sources (sockets, rates, files) with `STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED`. The in-memory source of
Spark's own tests polls its input every 10 ms, and a sink written in Python receives rows in batches of about a
megabyte, seconds late. None of that is specific to real-time mode, so both ends are small Java classes that implement
its public interfaces, compiled on first use with the JDK's `javac`. The query uses the same SQL functions as in
micro-batches, and the trigger's interval is the default, five minutes between checkpoints.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.streaming.structured import CORES, DRAIN_S, session
from benchmarks.streaming.work import WARM_UP_S, WORDS, Measured, NotAvailable, Seen, now, paced, texts, unpaced

FOLDER = Path(__file__).parent
SOURCES = (FOLDER / "SentenceSource.java", FOLDER / "CountSink.java")
CLASSES = FOLDER.parents[1] / ".bench" / "realtime"
PACKAGE = "benchmarks.streaming"
TRIGGER = "org.apache.spark.sql.streaming.Trigger"
TASKS = 1 + CORES
"""The source's task and the shuffle's all run at once: with fewer slots the query would never start."""
START_S = 60


def measure(rate: float | None, seconds: float) -> Measured:
    """Run word count in real-time mode."""
    compile_ends()
    settings = {"spark.driver.extraClassPath": str(CLASSES)}
    with tempfile.TemporaryDirectory() as name, session(Path(name), TASKS, **settings) as spark:
        try:
            return measure_in(spark, Path(name), rate, seconds)
        except PySparkException as refusal:
            raise NotAvailable(str(refusal).splitlines()[0]) from None


def compile_ends() -> None:
    """Compile the source and the sink, unless they are compiled already."""
    done = CLASSES / "done"
    if done.is_file() and all(done.stat().st_mtime > source.stat().st_mtime for source in SOURCES):
        return
    home = os.environ.get("JAVA_HOME")
    compiler = shutil.which("javac", path=f"{home}/bin" if home else None)
    if compiler is None:
        raise NotAvailable("javac: not found; real-time mode's source and sink need a JDK, not only a JRE")
    CLASSES.mkdir(parents=True, exist_ok=True)
    jars = Path(pyspark.__file__).parent / "jars"
    command = [compiler, "-nowarn", "-cp", f"{jars}/*", "-d", str(CLASSES), *map(str, SOURCES)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NotAvailable(f"javac: {result.stderr.strip().splitlines()[0]}")
    done.touch()


def word_counts(sentences: DataFrame) -> DataFrame:
    """Count words; `number` and `due` belong to the sentence that changed a count, because both only increase."""
    words = sentences.select("number", "due", sf.explode(sf.split("text", " ")).alias("word"))
    latest = [sf.max(name).alias(name) for name in ("number", "due")]
    return words.groupBy("word").agg(sf.count("*").alias("count"), *latest)


def measure_in(spark: SparkSession, folder: Path, rate: float | None, seconds: float) -> Measured:
    """Run the query until the last word has arrived."""
    jvm: Any = spark.sparkContext._jvm
    sink = getattr(jvm, f"{PACKAGE}.CountSink")
    source = getattr(jvm, f"{PACKAGE}.SentenceSource")
    query = start(spark, sink(), folder, {"rate": rate or 0, "seconds": WARM_UP_S + seconds})
    deadline = now() + START_S + WARM_UP_S + seconds + DRAIN_S
    while source.total() < 0 or sink.arrived() < source.total() * WORDS:
        if query.exception().isDefined():
            raise NotAvailable(query.exception().get().getMessage().splitlines()[0])
        if now() > deadline:
            raise RuntimeError(f"only {sink.arrived()} words of {source.total()} sentences have arrived")
        time.sleep(0.05)
    seen = read(sink, folder / "seen")
    query.stop()
    if rate is not None:
        return paced(seen, rate, seconds)
    return unpaced(seen.arrivals, np.ones(len(seen.arrivals), dtype=np.int64), seen.counted)


def start(spark: SparkSession, sink: Any, folder: Path, options: dict[str, float]) -> Any:
    """Start the query through the JVM's objects, because PySpark's `foreach` accepts only sinks in Python."""
    pool = folder / "texts"
    pool.write_text("\n".join(texts()))
    sentences = spark.readStream.format(f"{PACKAGE}.SentenceSource").options(texts=str(pool), **options).load()
    trigger = getattr(spark.sparkContext._jvm, TRIGGER).RealTime("5 minutes")
    writer = word_counts(sentences)._jdf.writeStream().outputMode("update").trigger(trigger).foreach(sink)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def read(sink: Any, path: Path) -> Seen:
    """Return what the sinks have recorded."""
    sink.save(str(path))
    numbers, dues, arrivals = np.fromfile(path, dtype=">i8").reshape(-1, 3).T
    none = np.zeros(0)
    return Seen(numbers.astype(np.int64), dues / 1e9, arrivals / 1e9, none, none, sink.counted())
