"""The audit of a run: the eleven steps, replay, re-execution, coverage and scores."""
