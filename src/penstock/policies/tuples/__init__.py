"""Tuple policies: routing (which way each tuple goes) and sending (which out-queue goes first); one file a policy."""
