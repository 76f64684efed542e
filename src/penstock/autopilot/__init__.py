"""The control loop: observe, decide, guard, apply the smallest change, wait, measure, record.

It knows a running application only as a `Plant` (`plant`), which is a run (`live`), the twin (`twin`) or a test's own;
what its tasks process is counted (`counts`).
What is decided is a pure function of what was observed (`proposing`, `deciding`), so that any decision can be made
again from the ledger (`ledger`, `replaying`), by the same policy or by another. What may be done is the guard's to say
(`guard`), what became of it the measurement's (`measuring`). `autopilot` leads through the steps; `pilot` does so in a
thread beside a run.
"""

from typing import TYPE_CHECKING

from penstock.model.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
    from penstock.autopilot.control_target import ControlTarget, Reading
    from penstock.autopilot.guard import Guard
    from penstock.autopilot.ledger import Episode, Ledger
    from penstock.autopilot.live_target import LiveTarget
    from penstock.autopilot.pilot import Pilot, attach
    from penstock.autopilot.twin_target import TwinTarget
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.autopilot.autopilot": "Autopilot, AutopilotSettings",
            "penstock.autopilot.control_target": "ControlTarget, Reading",
            "penstock.autopilot.guard": "Guard",
            "penstock.autopilot.ledger": "Episode, Ledger",
            "penstock.autopilot.live_target": "LiveTarget",
            "penstock.autopilot.pilot": "Pilot, attach",
            "penstock.autopilot.twin_target": "TwinTarget",
        },
    )

__all__ = [
    "Autopilot",
    "AutopilotSettings",
    "ControlTarget",
    "Episode",
    "Guard",
    "Ledger",
    "LiveTarget",
    "Pilot",
    "Reading",
    "TwinTarget",
    "attach",
]
