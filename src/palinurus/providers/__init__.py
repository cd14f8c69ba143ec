"""Speak to models: one protocol, one file a wire, typed failures."""
