"""The named applications: those of the papers, at the papers' sizes, and generated ones."""

import msgspec

from penstock.model.topology import Application, Component, Kind, Stream
from penstock.workloads.choice import Choice, choose
from penstock.workloads.flink_applications import synthetic_communication, throughput_test, top_speed_windowing
from penstock.workloads.storm_applications import QUERIES_LARGE_TPS, continuous_queries, log_processing, word_count
from penstock.workloads.topologies import layered, random_job

# SPARCLE, Table II; `cpu` is in giga-cycles, for machines whose speed is in GHz (`field-and-cloud`). The text has lost
# the figure with the graph; the table's order of transports makes it a chain.
GIGACYCLES = {"resize": 9.88, "denoise": 12.8, "detect-edges": 4.826, "detect-faces": 5.658}  # per image
IMAGE_BYTES = (3.1e6, 182e3, 145e3, 188e3, 11e3)  # raw, resized, denoised, edge map, faces


def face_detection(camera: str | None = None, consumer: str | None = None) -> Application:
    """Detect faces in the images of a camera: camera, resize, denoise, detect-edges, detect-faces, consumer.

    `camera` and `consumer` name the machines to which the two ends are pinned; SPARCLE pins both.
    """
    names = ("camera", *GIGACYCLES, "consumer")
    return Application(
        name="face-detection",
        components=(
            Component(name="camera", kind=Kind.SOURCE, pinned=camera),
            *(Component(name=name, cpu=cycles) for name, cycles in GIGACYCLES.items()),
            Component(name="consumer", kind=Kind.SINK, pinned=consumer),
        ),
        streams=tuple(
            Stream(source=source, target=target, tuple_bytes=size)
            for source, target, size in zip(names[:-1], names[1:], IMAGE_BYTES, strict=True)
        ),
    )


APPLICATIONS: dict[str, Choice[Application]] = {
    "word-count": Choice(word_count, "Li §2.3: lines to words to counts, 30 tasks"),
    "word-count-large": Choice(
        word_count, "Li §3.3: the same, 100 tasks", {"sources": 10, "splitters": 30, "counters": 30, "databases": 30}
    ),
    "word-count-two-sources": Choice(
        word_count, "Li §2.3: the same with a second source, 36 tasks", {"second_sources": 6}
    ),
    "log-processing": Choice(log_processing, "Li §2.3: rules, then index and count, 33 tasks"),
    "log-processing-large": Choice(
        log_processing,
        "Li §3.3: the same, 100 tasks",
        {"sources": 10, "rules": 20, "indexers": 20, "counters": 20, "databases": 15},
    ),
    "continuous-queries": Choice(continuous_queries, "Li §2.3: look-ups in a table in memory, 31 tasks"),
    "continuous-queries-small": Choice(
        continuous_queries, "Li §3.3: the same, 20 tasks", {"sources": 2, "queries": 9, "writers": 9}
    ),
    "continuous-queries-medium": Choice(
        continuous_queries, "Li §3.3: the same, 50 tasks", {"sources": 5, "queries": 25, "writers": 20}
    ),
    "continuous-queries-large": Choice(
        continuous_queries,
        "Li §3.3: the same, 100 tasks, 6,650 tuples/s",
        {"sources": 10, "queries": 45, "writers": 45, "rate_tps": QUERIES_LARGE_TPS},
    ),
    "top-speed-windowing": Choice(top_speed_windowing, "TATA §V-C: top speed of each car"),
    "throughput-test": Choice(throughput_test, "TATA §V-C: 10 kB tuples through an idle operator"),
    "synthetic-communication": Choice(synthetic_communication, "TATA §V-C: every operator doubles its tuples"),
    "face-detection": Choice(face_detection, "SPARCLE §V-A: faces in a camera's images; cpu in giga-cycles"),
    "random-job": Choice(random_job, "a random chain with the statistics of TATA's data set, for random-slots"),
    "layered": Choice(layered, "a random graph of layers, of any size"),
}


def application(spec: str) -> Application:
    """Return the application that a text specifies, such as `word-count` or `layered:components=100,seed=1`."""
    found = choose("application", APPLICATIONS, spec)
    return found if found.name == spec else msgspec.structs.replace(found, name=spec)
