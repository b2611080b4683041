"""exchange: formats of other programs."""
