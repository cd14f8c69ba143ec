"""Commands for a person at a shell; each calls an operation and shows it."""
