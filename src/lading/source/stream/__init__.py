"""Streams whose samples keep their names."""
