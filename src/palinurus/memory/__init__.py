"""Memory: indexes markdown files and sessions, and answers searches with cited snippets."""
