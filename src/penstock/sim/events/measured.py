"""What a span of the twin shows of the tasks' loads, in the form that scaling policies receive."""

import numpy as np

from penstock.model.instance import Instance
from penstock.model.slotted import Longs
from penstock.model.taskgraph import sum_by
from penstock.policies.api import TaskLoads
from penstock.sim.events.span import TwinSpan


def task_loads(span: TwinSpan, queue_before: Longs) -> TaskLoads:
    """Return the loads of all tasks in a span; `queue_before` has the tuples that waited at its start. [T]"""
    seconds = span.seconds
    rate = np.divide(span.processed, span.busy_s, out=np.full(len(span.processed), np.nan), where=span.busy_s > 0)
    return TaskLoads(
        arrival_tps=(span.taken + span.queue - queue_before) / seconds,
        processed_tps=span.processed / seconds,
        true_tps=rate,
        busy=span.busy_s / seconds,
        blocked=span.blocked_s / seconds,
        queue=span.waited_s / seconds,
    )


def selectivities(instance: Instance, span: TwinSpan) -> dict[str, float]:
    """Return the tuples emitted on each stream per tuple that its source processed, as declared if it processed none.

    The twin counts what a task emits on all its streams together; a stream's part is the declared one.
    """
    topology, tasks = instance.topology, instance.tasks
    components = len(tasks.position)
    processed = sum_by(tasks.component, span.processed.astype(np.float64), components)
    given = sum_by(tasks.component, span.given.astype(np.float64), components)
    found = {}
    for number, position in enumerate(tasks.position):
        streams = [s for s in topology.streams if s.source == topology.components[position].name]
        declared = sum(stream.selectivity for stream in streams)
        known = processed[number] > 0 and declared > 0
        factor = float(given[number] / processed[number]) / declared if known else 1.0
        found.update({stream.label: stream.selectivity * factor for stream in streams})
    return found
