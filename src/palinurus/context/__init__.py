"""Decides what the model reads, within its context window."""
