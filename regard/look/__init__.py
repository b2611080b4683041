"""look: what can be seen in a model."""
