"""What can happen: event types, aggregates, their invariants, the rules as pure functions."""
