"""`python -m benchmarks.streaming [SYSTEM…] [--quick] [--json FILE]`."""

import sys

from benchmarks.streaming.comparison import compare

compare(sys.argv[1:])
