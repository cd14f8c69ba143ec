"""The newest daily notes in the first message of a private session, so that a new day does not begin with nothing.

They ride beside the message like every note (promise 20): stored with it, and never taken for something that was said.
Lines that say they are from outside, and files that are, stay away: nobody asked for them, and they would make the
whole turn less trusted.
"""

from __future__ import annotations

from datetime import date, timedelta

from palinurus.config.compacting import StartupSettings
from palinurus.context.view import View
from palinurus.domain.messages import OUTSIDE_MARK, ContextNote
from palinurus.workspace.files import FileText, WorkspaceFiles

KIND = "startup"
NAME = "Daily notes"
_COMMENT = ("<!--", "-->")


def begins(view: View, settings: StartupSettings) -> bool:
    """Whether the next message is the first that is read."""
    return settings.enabled and not view.lines and view.reason in settings.on


def startup_notes(files: WorkspaceFiles, today: date, settings: StartupSettings) -> tuple[ContextNote, ...]:
    """One note with the end of each day's file, the newest day first; nothing when there is nothing."""
    parts: list[str] = []
    left = settings.characters
    for back in range(settings.days):
        path = f"memory/{today - timedelta(days=back):%Y-%m-%d}.md"
        found = files.read(path)
        if not isinstance(found, FileText) or files.sources_of(found.path):
            continue
        text = _end(found.body, min(left, settings.file_characters))
        if text:
            parts.append(f"{path}:\n{text}")
            left -= len(parts[-1]) + 2
    return (ContextNote(KIND, "\n\n".join(parts), NAME),) if parts else ()


def _end(text: str, most: int) -> str:
    """The last whole lines: what was noted last is what goes on."""
    kept: list[str] = []
    for line in reversed(text.splitlines()):
        if not line.strip() or OUTSIDE_MARK in line or line.strip().startswith(_COMMENT[0]):
            continue
        most -= len(line) + 1
        if most < 0:
            break
        kept.append(line.rstrip())
    return "\n".join(reversed(kept))
