"""The chat in a terminal: what arrives is shown as it comes, and typing goes on meanwhile."""
