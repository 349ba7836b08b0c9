"""Training of draft models: data, losses, gradients, checkpoints; knows no orchestration."""
