"""What a checkpoint learned from: one file beside its weights."""
