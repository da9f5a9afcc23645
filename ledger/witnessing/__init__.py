"""Witnesses: cosignatures, quorums, and evidence of two histories."""
