"""The command line: one file for each command; `main.py` puts them together."""
