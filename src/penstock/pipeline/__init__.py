"""The pipeline: Spark jobs that turn telemetry into tables, reports and latency models, and the session they run in."""

from typing import TYPE_CHECKING

from penstock.model.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from penstock.pipeline.accuracy import evaluate_latency
    from penstock.pipeline.ingest import read_telemetry
    from penstock.pipeline.job import Summary, run_pipeline
    from penstock.pipeline.landing import finish_landing, land
    from penstock.pipeline.store import read_table
    from penstock.pipeline.training import train_latency
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.pipeline.accuracy": "evaluate_latency",
            "penstock.pipeline.ingest": "read_telemetry",
            "penstock.pipeline.job": "Summary, run_pipeline",
            "penstock.pipeline.landing": "finish_landing, land",
            "penstock.pipeline.store": "read_table",
            "penstock.pipeline.training": "train_latency",
        },
    )

__all__ = [
    "Summary",
    "evaluate_latency",
    "finish_landing",
    "land",
    "read_table",
    "read_telemetry",
    "run_pipeline",
    "train_latency",
]
