"""Lines, proposals, evolutions and searches: how the system changes itself, as events."""
