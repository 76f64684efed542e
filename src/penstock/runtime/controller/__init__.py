"""The controller of a run: a state machine without I/O, its parts, and the process around it."""
