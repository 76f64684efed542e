"""The reproduced works, one package each; nothing imports them but the experiments, by name."""
