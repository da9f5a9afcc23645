"""Makers and scorers of this repository's own reference tasks."""
