"""The torch face: a ``DataLoader`` over the engine, its samplers and its relatives."""
