"""The control loop: observe, decide, guard, apply the smallest change, wait, measure, record.

It sees a running application only as a `ControlTarget` (`control_target`): a run (`live_target`), the twin
(`twin_target`) or a fake of a test. A decision is a pure function of what was observed (`proposal`, `decision`), so it
can be repeated from the `ledger`, with the same policy or another. `guard` limits what may be done and judges
the effect, `autopilot` performs the steps, and `pilot` does so in a thread beside a run.
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
