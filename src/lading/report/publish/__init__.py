"""Runs, token stores and checkpoints in an object store, and back."""
