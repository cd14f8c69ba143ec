"""Watching: what is counted while the gateway runs, and how it is told to those who watch it."""
