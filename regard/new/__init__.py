"""new: write recipes for a user's files."""
