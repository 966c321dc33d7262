"""Does the record hold: files, history, verdict."""
