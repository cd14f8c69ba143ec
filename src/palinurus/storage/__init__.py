"""Keepers of the stores that the rooms below declare."""
