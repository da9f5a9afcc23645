"""What leaves a ledger: bundles, proof files, tiles, and a verifier in one file."""
