"""Files of a home that no store has for its own: the database and its copies, the config, logs, what was typed."""

from __future__ import annotations

from palinurus.domain.text_places import TextFiles

PLACES = (
    TextFiles(r".*", "stays", "another agent's, or nothing that we know"),
    TextFiles(r"palinurus\.json.*", "stays", "the config is yours to change"),
    TextFiles(r"home\.sqlite.*", "rows"),
    TextFiles(r"home\.sqlite\.before-.*", "remove", copies_rows=True),  # from before an update
    TextFiles(r"derived/.*", "remove"),  # made again when it is needed
    TextFiles(r"logs/.*|chat-history\.jsonl", "lines of JSON"),
)
