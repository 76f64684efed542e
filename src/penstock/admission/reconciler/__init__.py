"""Operating a cluster: what the book says is done, on Spark, for as long as the operator runs.

Every path of every admitted application is a run of its own, on the part of the cluster that the path uses, with its
own checkpoints. The runs of one application share its sources by split logs; all runs share the emulated machines. The
book is the only thing that the operator is told by: who admits, releases, fails or restores changes the book.
"""

from penstock.admission.reconciler.operate import Operating, operate
from penstock.admission.reconciler.reconciler import Operator
from penstock.admission.reconciler.state import OperatorState, PathState, Phase, read_state

__all__ = ["Operating", "Operator", "OperatorState", "PathState", "Phase", "operate", "read_state"]
