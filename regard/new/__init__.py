"""new: recipes for a user's own files."""
