"""Metrics: figures counted while the gateway runs, /metrics, and the log of requests."""
