"""Calibration: measure the costs of an application and a cluster, for the twin and the planner.

`observation` summarises telemetry on Spark; `components`, `network` and `engine` derive costs without Spark; `probe`
has the dataflows that measure what an application's own telemetry does not contain; `calibrator` combines the results.
"""

from penstock.calibration.findings import Calibration, Measured, Unmeasured

__all__ = ["Calibration", "Measured", "Unmeasured"]
