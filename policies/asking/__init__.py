"""Asking a language model: the prompt, the request, the answer's form, the record."""
