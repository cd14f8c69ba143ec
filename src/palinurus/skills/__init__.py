"""Know-how on disk: folders with a SKILL.md, found, judged, offered and kept within what they declare."""
