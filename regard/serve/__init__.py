"""serve: one local page to use and look into runs, and an HTTP API for other programs."""
