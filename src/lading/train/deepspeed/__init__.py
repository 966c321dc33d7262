"""DeepSpeed training with batch tracking, checkpoints and a ledger."""
