"""score: metrics, the bootstrap, and the scores of a run."""
