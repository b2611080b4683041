"""score: metrics, and what they are computed from."""
