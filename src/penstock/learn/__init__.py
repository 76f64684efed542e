"""Training of placement networks: the only package that needs JAX (the extra `learn`). Using a network does not."""
