"""Faster implementations with the same results as the plain layers; `switch.plain()` turns them off."""
