"""Judges changes to a repository: tiers, tests and a reference set that no change can touch."""
