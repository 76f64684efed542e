"""Calibration: what a cluster really takes, measured, in the files that the twin and the planner read.

`observing` sums telemetry up on Spark; `components`, `network` and `engine` turn sums into costs and know no Spark;
`probe` has the dataflows that measure what an application's own telemetry cannot tell; `measuring` puts it together.
"""

from penstock.calibration.findings import Calibration, Left, Measured

__all__ = ["Calibration", "Left", "Measured"]
