"""Untrusted code in confined processes: submissions in a sandbox, candidates under a supervisor."""
