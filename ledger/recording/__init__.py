"""How entries are appended: batches, clocks, the ledger's end, opening a ledger."""
