"""Pages about a model's training data: numbers from ledgers, each with its query, and texts that somebody declared."""
