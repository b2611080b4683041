"""exchange: other programs' formats."""
