"""Faster forms of what the layers also do plainly, with the same results; `switch.plain()` turns them off."""
