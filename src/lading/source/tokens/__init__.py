"""Token stores: build, read, pack."""
