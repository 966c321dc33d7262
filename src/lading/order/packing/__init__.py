"""Which documents share a row: the index, its file, and the rows filled from it."""
