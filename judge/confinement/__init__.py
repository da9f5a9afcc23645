"""Submitted code in a confined child process: the sandbox and what it takes away."""
