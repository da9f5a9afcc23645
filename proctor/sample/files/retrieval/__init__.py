"""Chooses the rows that answer a query, under a cap."""
