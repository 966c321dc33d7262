"""The JAX face: global arrays on a mesh."""
