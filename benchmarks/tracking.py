"""What telemetry and tracking cost: the maximum rate of word count with them, as a share of the rate without.

Grid: off; sampled (20 source tuples a second followed to their end, telemetry written, the default of `penstock run`);
full (every tuple followed). Three workers, not emulated; the three take turns, a process each, several times over.
"""

import statistics

from benchmarks.streaming.systems import measure_apart

SECONDS = 8.0
REPEATS = 3
VARIANTS = ("penstock", "penstock_sampled", "penstock_full")


def main() -> None:
    """Print the maximum rate of each, and its ratio to the rate without tracking."""
    rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for repeat in range(REPEATS):
        for name in VARIANTS if repeat % 2 == 0 else reversed(VARIANTS):
            rates[name].append(measure_apart(name, None, SECONDS).rate_reached)
            print(f"  {name}: {rates[name][-1]:,.0f} sentences/s", flush=True)
    for name in VARIANTS:
        ratios = [rate / off for rate, off in zip(rates[name], rates["penstock"], strict=True)]
        print(
            f"{name:<18} {statistics.median(rates[name]):>10,.0f} sentences/s   "
            f"{statistics.median(ratios):.2f} of off ({min(ratios):.2f}–{max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
