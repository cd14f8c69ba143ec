"""The hands for files: reading, searching, writing and patching, inside the walls of a session."""
