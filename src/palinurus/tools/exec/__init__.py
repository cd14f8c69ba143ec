"""The hands that run commands: where, by whose leave, and what becomes of what they start."""
