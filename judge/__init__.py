"""Audits a run: eleven steps, two scores; the same training done again from its events."""
