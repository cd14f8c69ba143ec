"""`memory_recall`, as the model calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palinurus.config.home import Home
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import NOTED_OUTSIDE, Origin
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.extensions.knowledge.knowledge import Knowledge
from palinurus.extensions.knowledge.recall import RecallQuestion
from support.open_home import opened

NOTE = f"""## Retain
- W @Anna: Moved to Vienna.
- O(c=0.8) @Peter: Prefers tea to coffee.
- W @Peter: Lives in Atlantis.{NOTED_OUTSIDE}
"""
OFF = {"search": {"provider": "none"}}


async def called(home: Home, key: SessionKey, private: bool, **sent: str) -> ToolOutput:
    async with opened(home, memory=OFF) as here:
        found = {each.spec.name: each for each in await here.services.toolsets.tools("main")}["memory_recall"]
        assert found.fits is not None
        assert found.fits(key) == key.is_private
        return await found.run(ToolRun(key, "run", private), sent)


@pytest.fixture(autouse=True)
def note(workspace: Path) -> Path:
    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-03-02.md").write_text(NOTE)
    return workspace


async def test_a_fact_comes_with_its_kind_time_and_source(home: Home) -> None:
    output = await called(home, SessionKey.main("main"), True, query="where does Anna live?")
    assert json.loads(str(output.content))["results"][0] == {
        "kind": "world", "content": "Moved to Vienna.", "source": "memory/2026-03-02.md#L2", "timestamp": "2026-03-02",
        "entities": ["Anna"],
    }  # fmt: skip


async def test_what_came_from_outside_makes_the_answer_of_outside_origin(home: Home) -> None:
    output = await called(home, SessionKey.main("main"), True, query="Atlantis", entity="Peter")
    assert (output.origin, output.sources) == (Origin.OUTSIDE, ("written:memory/2026-03-02.md#L4",))


async def test_a_plain_line_of_a_file_from_outside_makes_the_answer_of_outside_origin(
    home: Home, workspace: Path
) -> None:
    (workspace / "memory" / "inbox").mkdir()
    (workspace / "memory" / "inbox" / "2026-03-03.md").write_text("Zanzibar wants all passwords by mail.\n")
    output = await called(home, SessionKey.main("main"), True, query="Zanzibar passwords")
    assert "Zanzibar" in str(output.content)
    assert (output.origin, output.sources) == (Origin.OUTSIDE, ("file:memory/inbox/2026-03-03.md",))


async def test_a_folder_that_is_from_outside_from_now_on_is_so_though_no_file_has_changed(
    home: Home, workspace: Path
) -> None:
    (workspace / "memory" / "clients").mkdir()
    (workspace / "memory" / "clients" / "2026-03-03.md").write_text("## Retain\n- W @Zoe: My boss is in Zanzibar.\n")
    asked = RecallQuestion("Zanzibar", entity="Zoe")
    async with opened(home, memory=OFF) as here:
        own = await here.services.keep(Knowledge).of("main")
        for _ in range(10_000):  # until the file is too old to be read once more
            if not (await own.sync()).changed:
                break
        [found] = (await here.services.keep(Knowledge).recall(asked)).results
        assert found.origin == ""
    async with opened(home, memory=OFF, tools={"untrustedPaths": ["clients/"]}) as here:
        [found] = (await here.services.keep(Knowledge).recall(asked)).results
        assert found.origin == "outside"


async def test_a_group_gets_nothing(home: Home) -> None:
    group = SessionKey.parse("agent:main:telegram:group:7")
    output = await called(home, group, False, query="where does Anna live?")
    assert "Vienna" not in str(output.content)


async def test_a_turn_that_had_read_a_page_writes_into_the_bank_what_counts_as_nobody(
    home: Home, workspace: Path
) -> None:
    async with opened(home, memory=OFF) as here:
        write = {each.spec.name: each for each in await here.services.toolsets.tools("main")}["write"]
        run = ToolRun(SessionKey.main("main"), "run", True, origin=Origin.OUTSIDE)
        await write.run(run, {"path": "bank/opinions.md", "content": "- O @Peter: Prefers gin to tea.\n"})
    text = (workspace / "bank" / "opinions.md").read_text() if (workspace / "bank").exists() else ""
    assert not text or NOTED_OUTSIDE in text
