"""Easy samples first, then everything: difficulty as levels, a pool that grows, an order that can be inverted."""
