"""Word count on several stream processors, compared: `python -m benchmarks.streaming`."""


def main() -> None:
    """Measure every system; a package with one file per system, so that each imports only its own."""
    from benchmarks.streaming.comparison import compare

    compare([])
