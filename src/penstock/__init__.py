"""Penstock schedules stream processing: where tasks run, how many there are, which way tuples go."""
