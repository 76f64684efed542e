"""What a placement policy that searches optimizes."""

from enum import StrEnum


class Objective(StrEnum):
    """What a search makes best."""

    THROUGHPUT = "throughput"  # maximum sustainable source tuples per second
    DELAY = "delay"  # network delay from source to sink
    TRAFFIC = "traffic"  # bytes between machines per source tuple
    BALANCED = "balanced"  # throughput and delay relative to a reference (TATA, eq. (13))
