"""The facts of a run that most parts of a controller read: its phase, its epoch, and where its tasks are."""

from collections.abc import Sequence

ENDED = ("stopped", "failed")  # phases


class RunState:
    """The phase, the epoch and the placement of a run.

    The state machine and recovery change the phase; recovery issues epochs; recovery and committed moves change the
    placement.
    """

    def __init__(self, names: Sequence[str], placement: Sequence[str], epoch: int) -> None:
        self.names = names  # of the tasks
        self.placement = list(placement)  # the slot that each task has
        self.phase = "starting"
        self.epoch = epoch

    @property
    def ended(self) -> bool:
        """Whether the run has stopped or failed."""
        return self.phase in ENDED

    @property
    def flowing(self) -> bool:
        """Whether tuples flow."""
        return self.phase in ("running", "draining")
