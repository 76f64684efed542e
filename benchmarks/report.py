"""Cost of a report of a short run: seconds and processor seconds of the session and of the report, and Spark jobs.

The telemetry is that of `pipeline`, 20,000 records; `python -m benchmarks.report 100000` for another size. Java is
cold, as for a single report; the second report uses the same session.
"""

import sys
import tempfile
import time
from pathlib import Path

from pyspark import SparkContext

from benchmarks.pipeline import _cpu_s, write
from penstock.pipeline.report import run_report
from penstock.pipeline.session import session

RECORDS = 20_000


def main() -> None:
    """Print the cost of the session and of two reports."""
    size = next((int(word) for word in sys.argv[1:] if word.isdecimal()), RECORDS)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = write(size, folder / "telemetry")
        begun = time.perf_counter()
        with session("benchmark") as spark:
            java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
            worked = _cpu_s(java)
            print(f"session: {time.perf_counter() - begun:.1f} s, {worked:.1f} s of processor")
            for name in ("first", "second"):
                spark.sparkContext.setJobGroup(name, name)
                begun, worked = time.perf_counter(), _cpu_s(java)
                run_report(spark, folder / "telemetry", folder / "report")
                seconds, cpu = time.perf_counter() - begun, _cpu_s(java) - worked
                jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(name))
                print(f"{name} report of {made:,} records: {seconds:.1f} s, {cpu:.1f} s of processor, {jobs} jobs")


if __name__ == "__main__":
    main()
