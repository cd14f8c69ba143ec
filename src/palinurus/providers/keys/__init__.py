"""Credentials: where they are stored, which one is used next, and which one is cooling down."""
