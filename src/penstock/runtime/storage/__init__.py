"""What a run keeps on disk: its folder, checkpoints and telemetry."""
