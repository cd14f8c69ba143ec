"""Records that every package may use: messages, keys, events, errors, clock. This package imports no other."""
