"""The tuple policies in force in a worker: which tasks get tuples, which queues leave the machine first, and when.

Without policies nothing of this package is loaded: its kernels and their compiler take longer to load than a worker
takes to start. Policies decide where and when tuples go; channels make sure that none is lost, doubled or overtaken,
whatever a policy decides.
"""

from penstock.model.tuples import TuplePolicies


def prepare(tuples: TuplePolicies | None) -> None:
    """Compile the kernels if policies need them, so that workers on the same machine find them on disk."""
    if tuples is not None and tuples.named:
        from penstock.runtime.worker.tuple_policies.router import warm_up  # loads the compiler

        warm_up()
