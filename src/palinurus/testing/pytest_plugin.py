"""Loaded by our own pytest runs: no network but loopback."""
