"""The predicted performance of a placement, without running it."""
