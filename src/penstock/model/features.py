"""Features: what the latency of a task or an edge is predicted from, and the columns of the tables that hold them.

Li's chapter 2 names them. A *window* is a span of a run, 30 s unless said. A row of the table of tasks is one task in
one window; a row of the table of edges is one pair of tasks over one stream in one window. Loads are tuples a second.
The order of the names is the order of columns in every array of features. What a machine has is a feature; what of it
was in use is kept beside, for those who work out what tuples cost.
"""

TASK_FEATURES = ("machine_cpu", "machine_memory", "task_load", "machine_load", "colocated")
"""Of a task: the capacity of its machine's cores (core-seconds of speed 1 that they do a second), the size of its
memory (MB), tuples a second that the task processes, that all tasks of its machine process, and how many other tasks
run there."""

EDGE_FEATURES = (
    "source_cpu", "source_memory", "source_load", "source_machine_load",
    "target_cpu", "target_memory", "target_load", "target_machine_load",
    "same_machine",
)  # fmt: skip
"""Of a pair of tasks: the sender's machine, its load and its machine's; the same of the receiver; 1.0 where both are on
one machine, else 0.0."""

CAPACITIES = ("machine_cpu", "machine_memory", "source_cpu", "source_memory", "target_cpu", "target_memory")
"""The features of which a machine may have more than was ever seen without being the slower for it."""

TASK_WINDOW = (
    "run", "window", "component", "task", "machine", *TASK_FEATURES, "used_cpu", "count", "processing_s",
)  # fmt: skip
"""Columns of `task_windows`. window: number since the run's first tuple was due. used_cpu: share of the machine's cores
in use. count: hops seen. processing_s: the label, mean time from when a tuple is taken up to the end of its
processing."""

EDGE_WINDOW = (
    "run", "window", "stream", "source", "target", "source_machine", "target_machine", *EDGE_FEATURES,
    "source_used_cpu", "count", "transfer_s",
)  # fmt: skip
"""Columns of `edge_windows`. source_used_cpu: of the sender's machine, as a source has no row of its own in
`task_windows`; a receiver has. transfer_s: the label, mean time from a tuple's entry into the sender's out-queue until
the receiver takes it up: the way, and waiting on both ends."""

LOAD_WINDOW = ("run", "window", "task", "machine", "task_load", "colocated", "used_cpu")
"""Columns of `features` that loads are read from. A task that was on several machines has a row without one, which says
what it processed on all of them."""

SHARE_WINDOW = ("run", "window", "stream", "source", "target", "tuples")
"""Columns of `shares` that loads are read from. tuples: hops seen."""

WINDOW_S = 30.0
