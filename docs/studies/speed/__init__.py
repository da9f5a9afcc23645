"""Benchmarks: how fast the ledger, the tables and the monitor are."""
