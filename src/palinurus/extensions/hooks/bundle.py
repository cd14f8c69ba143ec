"""The hooks that come with Palinurus. Each is off until the config enables it.

boot-md runs BOOT.md of each workspace once for each start of the gateway, in a session of its own. Nothing is delivered
automatically: the agent uses the tool `message` if somebody shall know something.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from palinurus.config.atomic import make_directory, storage_errors
from palinurus.domain.clock import local_time
from palinurus.domain.envelope import Inbound
from palinurus.domain.hooks import BOOTSTRAP, HookEvent
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, UserMessage, texts_in
from palinurus.extensions.hooks.settings import HookEntry
from palinurus.memory.conversations import said_line
from palinurus.operations.services import Services
from palinurus.sessions.transcript import timestamp
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import TextFile, WorkspaceFiles
from palinurus.workspace.instructions import BOOT
from palinurus.workspace.write import append_block

MOST_MATCHES = 50
BOOT_ORDER = """The gateway has just started. Follow the checklist of BOOT.md below, which is the owner's. Nobody \
reads your reply: if somebody shall know something, send it with the tool message. Reply NO_REPLY when you are done.

BOOT.md:
"""


class BundledHook(Struct, frozen=True):
    description: str
    events: tuple[str, ...]
    call: Callable[[Services, HookEntry, HookEvent], Awaitable[None]]
    emoji: str = ""


async def run_boot_files(services: Services, _: HookEntry, event: HookEvent) -> None:
    """Once for each workspace and start. What an earlier start began and a crash interrupted is being continued."""
    started = event.context["startedAt"]
    done: set[str] = set()
    running = {run.key.agent for run in services.dispatcher.runs.active() if run.key.kind == "boot"}
    for agent_id in services.agents.ids:
        workspace = str(services.workspace(agent_id).absolute())
        if workspace in done or agent_id in running:
            continue
        done.add(workspace)
        if not os.access(f"{workspace}/{BOOT}", os.F_OK):  # nothing is built for a workspace without one
            continue
        files = services.agents.get(agent_id).files
        await files.origins.load()
        if (inbound := await asyncio.to_thread(_boot_message, files, agent_id, started)) is not None:
            await services.dispatcher.submit(inbound)


def _boot_message(files: WorkspaceFiles, agent_id: str, started: int) -> Inbound | None:
    found = files.read(BOOT, fresh=True)
    if not isinstance(found, TextFile) or is_blank(found.body):
        return None
    sources = files.sources_of(found.path)
    return Inbound(
        f"{BOOT_ORDER}{found.body}",
        f"boot:{agent_id}:{started}",
        session_key=f"agent:{agent_id}:boot:{started}",
        channel="boot",
        sender="gateway",
        origin=Origin.OUTSIDE if sources else Origin.OWNER,
        sources=sources,
        attended=False,
        plain=True,
    )


def is_blank(text: str) -> bool:
    """Whether it says nothing: only headings, empty list items and comments."""
    lines = (line.strip() for line in text.splitlines())
    return all(not line.strip("-*+[] ") or line.startswith(("#", "<!--")) for line in lines)


async def save_conversation(services: Services, entry: HookEntry, event: HookEvent) -> None:
    """The last messages as they were said, besides the notes that a reset makes of them."""
    key = SessionKey.parse(event.session_key)
    if not key.is_private:
        return
    lines: list[str] = []
    is_tainted = False
    for line in (view := await services.turns.history.view_of(key)).lines:
        is_tainted = is_tainted or bool(view.outside.get(line.id) or texts_in(line.message))
        if text := said_line(line.message, is_tainted):
            is_command = isinstance(line.message, UserMessage) and line.message.text.startswith("/")
            lines += [] if is_command else [f"- {text}"]
    if not lines:
        return
    now = local_time(services.clock)
    facts = [f"- Session: {event.session_key}", f"- Saved by: /{event.action}", ""]
    files = services.agents.get(key.agent).files
    place, title = f"memory/{now:%Y-%m-%d-%H%M}.md", f"# Conversation until {now:%Y-%m-%d %H:%M}"
    await asyncio.to_thread(append_block, files.boundary, place, [*facts, *lines[-entry.messages :]], heading=title)


async def log_command(services: Services, _: HookEntry, event: HookEvent) -> None:
    row = {
        "timestamp": timestamp(event.timestamp),
        "action": event.action,
        "sessionKey": event.session_key,
        "senderId": event.context["senderId"],
        "source": event.context["commandSource"],
    }
    await asyncio.to_thread(_append_row, services.home.root / "logs" / "commands.log", row)


def _append_row(path: Path, row: dict[str, Any]) -> None:
    make_directory(path.parent)
    with storage_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{json.dumps(row, ensure_ascii=False)}\n".encode("utf-8", "replace"))
        finally:
            os.close(descriptor)


async def add_files(services: Services, entry: HookEntry, event: HookEvent) -> None:
    """Names them only: who builds the prompt reads them inside the workspace, and leaves out text from outside."""
    agent = services.agents.get(event.context["agentId"])
    wanted = (*entry.paths, *entry.patterns, *entry.files)
    names = await asyncio.to_thread(_matches, agent.files.boundary, wanted)
    listed = event.context["bootstrapFiles"]
    known = {each["name"] for each in listed}
    listed += [{"name": name} for name in names if name not in known]


def _matches(boundary: Boundary, patterns: tuple[str, ...]) -> list[str]:
    found: dict[str, None] = {}
    for pattern in patterns:
        path = PurePosixPath(pattern)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"{pattern!r} is not a path inside the workspace")
        for match in sorted(boundary.root.glob(pattern)):
            if match.is_file() and len(found) < MOST_MATCHES:
                found[str(match.relative_to(boundary.root))] = None
    return list(found)


async def tell_compaction(_: Services, __: HookEntry, event: HookEvent) -> None:
    facts = event.context
    if event.action == "compact:before":
        event.messages.append("Summarising the conversation …")
    else:
        tokens = f"{facts['tokensBefore']:,} → {facts['tokensAfter']:,} tokens"
        event.messages.append(f"Summarised {facts['compactedCount']} messages: {tokens}.")


BUNDLED = {
    "boot-md": BundledHook("Runs BOOT.md when the gateway starts.", ("gateway:startup",), run_boot_files, "🚀"),
    "session-memory": BundledHook(
        "Saves the last messages to memory/ at /new and /reset.",
        ("command:new", "command:reset"),
        save_conversation,
        "💾",
    ),
    "command-logger": BundledHook("Logs commands to logs/commands.log.", ("command",), log_command, "📝"),
    "bootstrap-extra-files": BundledHook("Adds files of the workspace to the prompt.", (BOOTSTRAP,), add_files, "📎"),
    "compaction-notifier": BundledHook(
        "Says when a conversation is summarised.",
        ("session:compact:before", "session:compact:after"),
        tell_compaction,
        "🗜",
    ),
}
