"""An MCP server: other agents read conversations here and talk to the agents of this home."""
