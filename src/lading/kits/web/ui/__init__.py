"""``lading ui``: the pages of runs as a small site that only reads."""
