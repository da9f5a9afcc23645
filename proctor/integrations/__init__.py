"""Callbacks that put trainings of other frameworks under watch; each needs its own extra."""
