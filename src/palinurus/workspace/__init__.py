"""The agent's markdown files, read inside the boundary of its workspace."""
