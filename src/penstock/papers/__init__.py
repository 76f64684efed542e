"""The reproduced works, one package each; only the experiments import them, by name."""
