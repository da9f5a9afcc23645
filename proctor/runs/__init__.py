"""Runs and campaigns: trained, told as a story, and replayed."""
