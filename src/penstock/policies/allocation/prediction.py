"""What a best-effort application can expect of every element before it is placed (SPARCLE, eq. (6)).

Where an element limits all that use it, weighted proportional fairness gives each application at least the share of
its priority (SPARCLE, Theorem 3). To place an application as if it had that share everywhere makes where it goes
depend on priorities, and little on who came first.
"""

from penstock.model.taskgraph import Floats


def predicted(capacity: Floats, priority: float, others: Floats) -> Floats:
    """Return the capacity to expect of every element: [E].

    `others` [E] is the sum of the priorities of the applications that use the element already; the sum in (6) has the
    new one, too.
    """
    return capacity * (priority / (priority + others))  # (6)
