"""The tuple policies in force in a worker: which tasks receive tuples, and which out-queues are served first, and when.

Without policies nothing of this package is loaded: loading its kernels and their compiler takes longer than the
start-up of a worker. Policies decide on the destination and the time of tuples. Whatever they decide, channels
guarantee that no tuple is lost, duplicated or overtaken.
"""

from penstock.model.tuples import TuplePolicies


def compile_policies(tuples: TuplePolicies | None) -> None:
    """Compile the kernels if policies need them, so that workers on the same machine find them on disk."""
    if tuples is not None and tuples.named:
        from penstock.runtime.worker.tuple_policies.router import warm_up_kernels  # loads the compiler

        warm_up_kernels()
