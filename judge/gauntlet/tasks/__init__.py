"""Reference tasks: the set, an arm's answers to it, and the scorers."""
