"""check: look at a recipe's data before an hour is spent on it."""
