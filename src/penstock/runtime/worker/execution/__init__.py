"""How a worker executes its tasks: directly, or on emulated machines."""
