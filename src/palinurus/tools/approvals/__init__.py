"""Approvals: shows a person the exact plan, stores their decision, and makes grants for "always"."""
