"""predict: from raw inputs to answers."""
