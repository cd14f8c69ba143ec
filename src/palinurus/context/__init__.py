"""Decide what the model reads, within its window."""
