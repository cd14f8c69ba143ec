"""First-party packages that register with the core like a plugin. The core names them only in strings."""
