"""Append-only records: the audit log, traces of runs, and usage with cost."""
