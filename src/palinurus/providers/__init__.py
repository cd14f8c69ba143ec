"""Models: one protocol, one file per wire format, typed failures."""
