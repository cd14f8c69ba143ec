"""A past session turned into a skill that waits for review."""
