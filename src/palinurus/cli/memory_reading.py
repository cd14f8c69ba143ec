"""`pal memory get` and `pal memory status`: a memory file as it is, and how the index stands beside the disk."""

from __future__ import annotations

from palinurus.cli.derived import command_of
from palinurus.cli.memory_text import status_text
from palinurus.operations.memory import get_memory, show_memory_status

get = command_of(get_memory, lambda _, found: found.text, exit_code=lambda found: 0 if found.lines else 1)
status = command_of(
    show_memory_status,
    lambda _, found: status_text(found),
    exit_code=lambda found: 1 if found.difference_count or found.trouble else 0,
    makes_home=True,
)
