"""Where every task runs: one file a policy."""
