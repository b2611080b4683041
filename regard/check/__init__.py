"""check: find problems in a recipe's data before training on it."""
