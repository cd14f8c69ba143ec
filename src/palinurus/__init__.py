"""Palinurus: a home for personal AI agents."""

__version__ = "0.1.0"
