"""What a prompt costs: the provider's count where there is one, an estimate for what came after it."""

from __future__ import annotations

from pathlib import Path

from palinurus.config.home import Home
from palinurus.context.budget import messages_tokens
from palinurus.context.report import ContextReport, render
from palinurus.domain.errors import Failure
from palinurus.domain.messages import Usage
from palinurus.operations.status import show_context
from palinurus.testing.fakes import Reply, fails
from palinurus.testing.harness import Harness


async def report(pal: Harness, home: Home) -> ContextReport:
    return await show_context(pal.services(home))


async def test_before_the_first_call_everything_is_estimated(pal: Harness, home: Home) -> None:
    shown = await report(pal, home)
    assert (shown.counted, shown.messages, shown.message_tokens) == (False, 0, 0)
    assert shown.total_tokens == sum(part.tokens for part in shown.parts) > 100
    assert "estimated" in render(shown)


async def test_after_a_call_the_provider_s_count_holds_and_the_tail_is_estimated(pal: Harness, home: Home) -> None:
    pal.model.says(Reply("Ahoy.", usage=Usage(900, 50, 40, 10)), fails(Failure.NETWORK))
    await pal.hears("one")
    assert (await report(pal, home)).total_tokens == 1000
    await pal.hears("a longer question that nobody answered")
    shown = await report(pal, home)
    tail = messages_tokens((await pal.messages())[2:])
    assert (shown.counted, shown.total_tokens) == (True, 1000 + tail)
    assert tail > 0
    assert "counted by the provider" in render(shown)


async def test_every_part_has_its_sizes_and_the_table_shows_them(pal: Harness, home: Home, workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("---\ntitle: x\n---\n" + "rule " * 5000)
    shown = await report(pal, home)
    parts = {part.name: part for part in shown.parts}
    assert parts["AGENTS.md"].raw == 25_000 + len("---\ntitle: x\n---\n")
    assert parts["AGENTS.md"].truncated
    assert parts["AGENTS.md"].injected <= 20_000
    assert not parts["SOUL.md"].truncated
    assert {"Identity", "Tools", "Safety", "Memory", "Workspace", "Messages", "tool memory_write"} <= set(parts)
    lines = render(shown).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["Identity", "Tools"]
    assert any(line.startswith("AGENTS.md") and line.endswith("truncated") for line in lines)
