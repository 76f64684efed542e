"""Run all benchmarks, or some by name: `python -m benchmarks estimator placement`."""

import sys
from importlib import import_module

NAMES = (
    "estimator",
    "saturation",
    "placement",
    "sparcle",
    "book",
    "slotted",
    "events",
    "emulation",
    "tracking",
    "worker",
    "frames",
    "checkpoints",
    "keyed",
    "pipeline",
    "report",
    "commands",
    "streaming",
)

for name in sys.argv[1:] or NAMES:
    if name not in NAMES:
        sys.exit(f"benchmark: none is named {name!r}; there are {', '.join(NAMES)}")
    print(f"== {name} ==", flush=True)
    import_module(f"benchmarks.{name}").main()
    print(flush=True)
