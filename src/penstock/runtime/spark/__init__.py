"""What the runtime asks of Spark: executors, long-lived jobs pinned to them, and the user's code on them.

`executors` finds the hosts and cores and the settings that suit us, `cores` says which are free, `jobs` launches and
cancels slots, `shipping` takes modules to the executors, `closures` takes functions there. Nothing is imported here,
because `slot` runs on executors and has no need of the rest.
"""
