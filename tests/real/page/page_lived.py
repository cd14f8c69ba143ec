"""A home that somebody has lived in: conversations, notes, a history, use that cost something."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from page_house import PageHouse

from palinurus.config.home import find_home
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, Usage, UserMessage
from palinurus.ledger.usage import UsageRow
from palinurus.sessions.session import SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry, MessageEntry, timestamp
from palinurus.storage.database import Database
from palinurus.workspace.history import WorkspaceHistory

DAY_MS = 86_400_000
MAIN = SessionKey.main("main")
REPLY = """Three things are on today:

1. **Tides**: low at 11:40, so the mooring wants looking at.
2. Ann's letter, which waits since Tuesday.
3. The `tide` script, see below.

| boat | berth | paid |
|---|---|---|
| Alma | 12 | yes |
| Aster | 7 | no |

```python
def tide(day: int) -> float:
    return 1.2 + day % 7
```

> Notes say that Ann prefers mornings. [The tables](https://example.org/tides)
"""


def lived_in(services: PageHouse) -> None:
    """To be called before the gateway starts."""
    notes(services.workspace)
    now = SystemClock().now_ms()
    said: list[Message] = []
    for day in range(6):
        at = now - (6 - day) * DAY_MS // 2
        said.append(UserMessage((Text("what is on today?"),), at))
        call = ToolCall(f"call_{day}", "memory_search", {"query": "today"})
        said.append(_reply((call,), at + 1000, "toolUse"))
        said.append(
            ToolResult(
                call.id, "memory_search", (Text("memory/2026-11-15.md#L1: low tide at 11:40"),), timestamp=at + 2000
            )
        )
        said.append(_reply((Text(REPLY),), at + 3000))
    keep(services, MAIN, said, label="The harbour")
    other = SessionKey.parse("agent:main:direct:anna")
    keep(
        services,
        other,
        [
            UserMessage((Text("hello Anna here"),), now - 2 * DAY_MS),
            _reply((Text("Good morning, Anna."),), now - 2 * DAY_MS + 900),
        ],
    )


def notes(workspace: Path) -> None:
    (workspace / "MEMORY.md").write_text("# Memory\n\n- The boat is called Alma.\n- Ann prefers mornings.\n")
    (workspace / "memory" / "2026-11-15.md").write_text(
        "# 2026-11-15\n\n- Low tide at 11:40; the boat lies in berth 12.\n"
    )
    if not WorkspaceHistory(workspace).why_not():
        WorkspaceHistory(workspace).commit("The first notes", author="main")
        (workspace / "SOUL.md").write_text("# Soul\n\nCalm, brief, a little dry.\n")
        WorkspaceHistory(workspace).commit("", "SOUL.md edited", "owner")


def keep(services: PageHouse, key: SessionKey, said: list[Message], label: str = "") -> None:
    # On a thread of its own: Playwright has a loop running on this one.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, _keep(services, key, said, label)).result(60)


async def _keep(services: PageHouse, key: SessionKey, said: list[Message], label: str) -> None:
    home = find_home(services.env)
    database = Database(home.root / "home.sqlite", "home")
    try:
        store = SessionStore(database, SystemClock(), random_id)
        session = await store.open(key)
        parent = (await store.rows(session.id))[-1].id
        for start in range(0, len(said), 2_000):
            entries: list[Entry] = []
            for message in said[start : start + 2_000]:
                entries.append(MessageEntry(random_id(), timestamp(message.timestamp), parent, message=message))
                parent = entries[-1].id
            await store.append(session.id, entries, SessionChange(label=label or None, interaction=True))
        for row in spent(key) if label else ():
            await store.append(session.id, (), SessionChange(spent=row))
    finally:
        await database.close()


def spent(key: SessionKey) -> Iterator[UsageRow]:
    """Three weeks of two models, by a rule and not by chance: pictures shall be the same tomorrow."""
    now = SystemClock().now_ms()
    for day in range(21):
        at = now - day * DAY_MS
        usage = Usage(900 + 310 * (day * 7 % 11), 240 + 90 * (day % 5), 6_000 + 2_100 * (day * 5 % 7), 300)
        yield UsageRow(random_id(), at, "run", str(key), key.agent, "wire", "test", usage, 0.004 + 0.001 * (day % 4))
        if day % 3:
            more = Usage(2_000 + 500 * (day % 4), 500, 3_000, 0)
            yield UsageRow(random_id(), at, "run", str(key), key.agent, "openai", "gpt-5-mini", more, 0.011)


def _reply(content: tuple[Text | ToolCall, ...], at: int, stop: str = "stop") -> AssistantMessage:
    usage = Usage(1200, 80, 5000, 100)
    return AssistantMessage(content, "wire", "test", "openai-completions", usage, stop, None, at)  # type: ignore[arg-type]
