"""How a run starts: validate its settings, create its folder, discover executors, plan, launch."""
