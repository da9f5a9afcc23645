"""What may become training data, and what was exported, as events."""
