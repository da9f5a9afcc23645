"""How a ledger is verified: one entry after the other, in bulk, and from proofs."""
