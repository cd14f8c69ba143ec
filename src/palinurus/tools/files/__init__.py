"""The tools for files: reading, searching, writing and patching, inside the workspace of a session."""
