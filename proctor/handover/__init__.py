"""A model handed over: its files, and beside them signed claims that its ledger proves."""
