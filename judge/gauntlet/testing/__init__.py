"""Run a repository's own tests on a candidate, and read their reports."""
