"""predict: decode text, labels or tags for raw inputs."""
