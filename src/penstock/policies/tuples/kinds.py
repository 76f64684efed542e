"""Numbers of tuple policies for kernels; a compiled function passed as an argument would not be cached."""

SHUFFLE, IN_TURN, FIELDS, PARTIAL_KEY, LOAD_AWARE, LEAST_LOADED, LOCAL_FIRST, POTUS, POTUS_PLUS = range(9)

FIFO, RANDOM, QUEUES_IN_TURN, IDLE_TURNS, LONGEST_FIRST = range(5)
