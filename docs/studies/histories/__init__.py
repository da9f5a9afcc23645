"""Ordinary histories of public packages, judged through the front door."""
