"""Authentication: credentials, scopes, protected config, and refusals."""
