"""The weighted order: weights, schedules, the split tree, and where a sample comes in it."""
