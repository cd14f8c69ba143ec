"""The small embedded model for small talk."""
