"""The tools that run commands: where a command runs, what permits it, and what happens to its processes."""
