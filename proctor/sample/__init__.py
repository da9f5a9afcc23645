"""The sample repository: its files, its reference tasks, and the demo on it."""
