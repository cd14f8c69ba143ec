"""Accepts messages, chooses their session, queues and runs them, and delivers replies."""
