"""Exploration: training data by random placements, on the twin or on an application that runs.

`drawing` draws placements that cover crowded and spread-out ones and sustain the load; `twin` tries them in virtual
time, `live` on a run, bounded and with the way back (`asked`: on a run of another process); `spans` cuts telemetry so
that every placement is a run of its own; `index` says which run had which placement.
"""
