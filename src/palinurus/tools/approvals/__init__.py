"""Asking a person: the exact plan, their answer, and what "always" would mean."""
