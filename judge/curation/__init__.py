"""Training data from runs that hold, sealed as of an index."""
