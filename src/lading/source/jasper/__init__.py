"""JASPER directories: embeddings, steering and tiered negatives."""
