"""What a best-effort application can expect of every element before it is placed (SPARCLE, eq. (6)).

If an element limits all its users, weighted proportional fairness gives each application at least the share of its
priority (SPARCLE, Theorem 3). Placing an application as if it had that share everywhere makes its placement depend on
priorities, and little on the order of arrival.
"""

from penstock.model.taskgraph import Floats


def predicted(capacity: Floats, priority: float, others: Floats) -> Floats:
    """Return the capacity to expect of every element: [E].

    `others` [E] is the sum of the priorities of the applications that already use the element; the sum in (6) includes
    the new one.
    """
    return capacity * (priority / (priority + others))  # (6)
