"""Training data from a ledger: selection, sealing and recall of exports."""
