"""Discord: a bot of the developer portal, on discord.py."""
