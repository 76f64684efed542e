"""Tuple policies: routing (the task of each tuple) and sending (the order of out-queues); one file per policy."""
