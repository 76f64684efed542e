"""Features: the inputs of latency prediction for a task or an edge, and the columns of the tables that contain them.

Li's chapter 2 defines them. A *window* is a span of a run (default: 30 s). A row of the task table is one task in one
window; a row of the edge table is one pair of tasks over one stream in one window. Loads are in tuples per second. The
order of the names is the order of columns in every array of features. The capacity of a machine is a feature; its
utilisation is stored in addition, for measuring the cost of tuples.
"""

TASK_FEATURES = ("machine_cpu", "machine_memory", "task_load", "machine_load", "colocated")
"""Features of a task: the cpu capacity of its machine (core-seconds of speed 1 per second), the size of its memory
(MB), the tuples per second that the task processes, those that all tasks of its machine process, and the number of
other tasks on the machine."""

EDGE_FEATURES = (
    "source_cpu", "source_memory", "source_load", "source_machine_load",
    "target_cpu", "target_memory", "target_load", "target_machine_load",
    "same_machine",
)  # fmt: skip
"""Features of a pair of tasks: the sender's machine, its load and that of its machine; the same of the receiver; 1.0 if
both are on one machine, else 0.0."""

CAPACITIES = ("machine_cpu", "machine_memory", "source_cpu", "source_memory", "target_cpu", "target_memory")
"""Features that may exceed their maximum in the training data without making the machine slower."""

TASK_WINDOW = (
    "run", "window", "component", "task", "machine", *TASK_FEATURES, "used_cpu", "count", "processing_s",
)  # fmt: skip
"""Columns of `task_windows`. window: number, counted from the time at which the run's first tuple was due. used_cpu:
fraction of the machine's cores in use. count: hops in the window. processing_s: the label, mean time from the start to
the end of processing a tuple."""

EDGE_WINDOW = (
    "run", "window", "stream", "source", "target", "source_machine", "target_machine", *EDGE_FEATURES,
    "source_used_cpu", "count", "transfer_s",
)  # fmt: skip
"""Columns of `edge_windows`. source_used_cpu: of the sender's machine; sources have no row in `task_windows`.
transfer_s: the label, mean time from a tuple's entry into the sender's out-queue until the receiver starts to process
it: transfer, and waiting on both ends."""

LOAD_WINDOW = ("run", "window", "task", "machine", "task_load", "colocated", "used_cpu")
"""Columns of `features` that loads are read from. A task that moved within a window also has a row without a machine,
with the tuples that it processed on all of them."""

SHARE_WINDOW = ("run", "window", "stream", "source", "target", "tuples")
"""Columns of `shares` that loads are read from. tuples: hops in the window."""

WINDOW_S = 30.0
