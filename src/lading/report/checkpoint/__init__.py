"""What a model learned from, over all its generations."""
