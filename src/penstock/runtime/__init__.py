"""The stream runtime: long-lived tasks inside Spark tasks, and the controller that directs them."""
