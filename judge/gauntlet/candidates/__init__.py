"""Where a candidate's code runs: its interpreter, its namespaces, its supervisor."""
