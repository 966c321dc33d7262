"""Watch a short run of a loader and say what is wrong with it."""
