"""The gate: its simulated error rates, and which planted defects its tasks miss."""
