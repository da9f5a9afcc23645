"""Event types, aggregates and their invariants, and the rules as pure functions."""
