"""Texts that a policy is guided by; data, not code."""
