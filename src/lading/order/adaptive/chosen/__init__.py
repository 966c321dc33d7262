"""Chunks that are chosen while a run goes on, each once a pass."""
