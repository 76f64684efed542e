"""How many tuples will come: one file a policy, and what shows how well each foresees."""
