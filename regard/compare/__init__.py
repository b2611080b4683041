"""compare: models trained alike, measured alike, in one report."""
