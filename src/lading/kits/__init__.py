"""Whole systems built on the core: each folder is everything of one; the core knows none, and none another."""
