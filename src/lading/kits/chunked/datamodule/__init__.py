"""Partitions and their loaders, no trainer's framework: data modules and the sizes rule."""
