"""Cost of telemetry and tracing: the maximum rate of word count with them, relative to the rate without.

Grid: off; sampled (20 source tuples traced per second, with telemetry, the default of `penstock run`); full (every
tuple traced). Three workers, not emulated, in one Spark session; off and sampled alternate, and each ratio is of two
adjacent runs, because the machine's own speed changes from minute to minute.
"""

import statistics

from benchmarks.streaming.penstock import measure
from penstock.pipeline.session import session
from penstock.runtime.spark.executors import embedded_master, spark_settings

SECONDS = 5.0
PAIRS = 8
WORKERS = 3
SAMPLED, FULL = 20.0, -1.0


def main() -> None:
    """Print the maximum rate of each variant, and its ratio to the rate without tracing."""
    with session("tracking", embedded_master(WORKERS), settings=spark_settings(WORKERS, embedded=True)):
        measure(None, SECONDS, WORKERS)  # start processes and import modules
        off: list[float] = []
        sampled: list[float] = []
        for pair in range(PAIRS):
            for rates, sample in ((off, 0.0), (sampled, SAMPLED)) if pair % 2 else ((sampled, SAMPLED), (off, 0.0)):
                rates.append(measure(None, SECONDS, WORKERS, sample).rate_reached)
            print(f"  off {off[-1]:,.0f}, sampled {sampled[-1]:,.0f} sentences/s", flush=True)
        full = [measure(None, SECONDS, WORKERS, FULL).rate_reached for _ in range(2)]
    ratios = sorted(rate / without for rate, without in zip(sampled, off, strict=True))
    print(f"off      {statistics.median(off):>8,.0f} sentences/s ({min(off):,.0f}–{max(off):,.0f})")
    print(
        f"sampled  {statistics.median(sampled):>8,.0f} sentences/s, {statistics.median(ratios):.2f} of off "
        f"({ratios[1]:.2f}–{ratios[-2]:.2f} without the extremes)"
    )
    share = statistics.median(full) / statistics.median(off)
    print(f"full     {statistics.median(full):>8,.0f} sentences/s, {share:.3f} of off")


if __name__ == "__main__":
    main()
