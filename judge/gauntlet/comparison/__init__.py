"""The statistics: whether a candidate's answers are better or worse than the base's."""
