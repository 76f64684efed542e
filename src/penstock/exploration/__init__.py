"""Exploration: training data from random placements, on the twin or on a running application.

`random_placements` draws placements, crowded and spread-out, that sustain the load. `twin_exploration` tries them in
virtual time, `guarded_exploration` on a running application, with limits and a final restore, and `live_exploration` on
a run of another process. `spans` cuts telemetry so that every placement becomes a run of its own; `index` records which
run had which placement.
"""
