"""Training data from a ledger: what may leave it, under which seal, and what to call back."""
