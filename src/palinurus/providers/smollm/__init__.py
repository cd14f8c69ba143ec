"""The small embedded model: chats, knows nothing, says so."""
