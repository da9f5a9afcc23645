"""Bytes and trust: an event store whose every event is linked, hashed and signed.

Knows nothing of training: it could carry any event-sourced application.
"""
