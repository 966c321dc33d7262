"""Chunks that adapt: what the user asks for, the policies that choose, and the engine's part of it."""
