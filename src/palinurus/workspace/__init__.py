"""The agent's own markdown, read inside its walls."""
