"""What the runtime uses Spark for: executors, long-lived jobs pinned to them, and the user's code on them.

`executors` finds hosts and cores and has the settings of a session, `cores` which cores are free, `jobs` launches and
cancels slots, `shipping` sends modules to the executors, `closures` serializes functions. Nothing is imported here,
because `slot` runs on executors and does not need the rest.
"""
