"""read, ls and grep as a model uses them, on a real directory."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Image, Text, ToolCall
from palinurus.domain.tool import ToolRun
from palinurus.testing.loop_time import excuse
from palinurus.tools.built_in import file_tools
from palinurus.tools.files.reader import search
from palinurus.tools.registry import ToolRegistry
from palinurus.workspace import pictures
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

SHARED_KEY = SessionKey.parse("agent:main:telegram:group:1")


class Hands:
    """A registry of all three tools over one workspace; the second argument of a call says whether it is private."""

    def __init__(self, root: Path) -> None:
        self.root = root
        files = WorkspaceFiles(Boundary(root))
        self.registry = ToolRegistry(file_tools(files))

    async def use(self, name: str, *, private: bool = True, error: bool = False, **arguments: Any) -> str:
        key = SessionKey.main() if private else SHARED_KEY
        output = await self.registry.run(ToolRun(key, "r", private), ToolCall("c", name, arguments))
        assert output.is_error == error, output.content
        assert isinstance(output.content, str)
        return output.content


@pytest.fixture
def hands(tmp_path: Path) -> Hands:
    root = tmp_path / "ws"
    (root / "memory").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "SOUL.md").write_text("Be kind.\nThe bicycle is red.\n")
    (root / "MEMORY.md").write_text("The bicycle is green.\n")
    (root / "USER.md").write_text("Rides a Bicycle\n")
    (root / "memory" / "2026-11-01.md").write_text("# 2026-11-01\n\n- bought a bicycle\n")
    (root / "docs" / "long.md").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    (tmp_path / "secret.md").write_text("bicycle secret")
    return Hands(root)


def test_what_the_model_is_told_about_the_tools_is_short(hands: Hands) -> None:
    specs = hands.registry.specs()
    assert [spec.name for spec in specs] == ["grep", "ls", "read"]
    told = json.dumps([[spec.name, spec.description, spec.parameters] for spec in specs], separators=(",", ":"))
    assert len(told) < 1_600
    assert specs[2].parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "offset": {"type": "integer", "description": "first line"},
            "limit": {"type": "integer", "description": "how many lines"},
        },
        "required": ["path"],
    }


async def test_read_numbers_the_lines_under_a_header(hands: Hands) -> None:
    assert await hands.use("read", path="SOUL.md") == "SOUL.md (lines 1-2 of 2)\n1| Be kind.\n2| The bicycle is red."


async def test_read_pages_through_a_long_file_without_losing_a_line(hands: Hands) -> None:
    offset, seen = 1, []
    while True:
        lines = (await hands.use("read", path="docs/long.md", offset=offset)).split("\n")
        seen += [line for line in lines[1:] if "|" in line]
        if not lines[-1].startswith("[continue with offset="):
            break
        offset = int(lines[-1].removeprefix("[continue with offset=").rstrip("]"))
    assert seen == [f"{n}| line {n}" for n in range(1, 1001)]


async def test_read_ends_a_page_before_it_would_be_cut_and_shortens_a_giant_line(hands: Hands) -> None:
    (hands.root / "wide.md").write_text("".join("x" * 3_000 + "\n" for _ in range(20)) + "y" * 50_000)
    page = await hands.use("read", path="wide.md")
    assert page.startswith("wide.md (lines 1-4 of 21)")
    assert page.endswith("[continue with offset=5]")
    last = await hands.use("read", path="wide.md", offset=21)
    assert "[… 46,000 more characters in this line]" in last


async def test_read_of_an_empty_file_and_past_the_end(hands: Hands) -> None:
    (hands.root / "empty.md").write_text("")
    assert await hands.use("read", path="empty.md") == "empty.md (lines 0-0 of 0)"
    assert "ends at line 2" in await hands.use("read", path="SOUL.md", offset=3, error=True)


@pytest.mark.parametrize("path", ["../secret.md", "/etc/passwd", "docs/../../secret.md", "none.md", "docs", "bin.dat"])
async def test_read_refuses_what_it_cannot_or_may_not_read(hands: Hands, path: str) -> None:
    (hands.root / "bin.dat").write_bytes(b"\0\1\2")
    said = await hands.use("read", path=path, error=True)
    assert "secret" not in said.replace("secret.md", "")


async def test_ls_marks_directories_and_says_when_there_is_nothing_or_too_much(hands: Hands) -> None:
    assert await hands.use("ls") == "MEMORY.md\nSOUL.md\nUSER.md\ndocs/\nmemory/"
    (hands.root / "docs" / "none").mkdir()
    assert await hands.use("ls", path="docs/none") == "[empty]"
    for number in range(501):
        (hands.root / "docs" / "none" / f"{number}").write_text("")
    many = await hands.use("ls", path="docs/none")
    assert many.endswith("[more than 500 entries: list a directory below]")
    assert "is a file" in await hands.use("ls", path="SOUL.md", error=True)
    assert "leads out" in await hands.use("ls", path="..", error=True)


async def test_grep_cites_lines_in_path_order_and_ignores_case(hands: Hands) -> None:
    assert await hands.use("grep", pattern="BICYCLE") == (
        "MEMORY.md#L1: The bicycle is green.\n"
        "SOUL.md#L2: The bicycle is red.\n"
        "USER.md#L1: Rides a Bicycle\n"
        "memory/2026-11-01.md#L3: - bought a bicycle"
    )
    assert await hands.use("grep", pattern="bicycle", path="SOUL.md") == "SOUL.md#L2: The bicycle is red."
    assert await hands.use("grep", pattern="bicycle", path="memory") == "memory/2026-11-01.md#L3: - bought a bicycle"


async def test_a_pattern_with_repetitions_finds_the_same_through_the_child_process(hands: Hands) -> None:
    assert await hands.use("grep", pattern=r"bi(cy)+cle.*gre{2}n") == "MEMORY.md#L1: The bicycle is green."


async def test_grep_without_a_match_says_so_and_is_no_error(hands: Hands) -> None:
    assert await hands.use("grep", pattern="submarine") == "no line in . matches 'submarine'"


async def test_grep_shows_at_most_what_was_asked_and_says_that_there_is_more(hands: Hands) -> None:
    found = (await hands.use("grep", pattern="line", path="docs", max=3)).split("\n")
    assert found[:3] == ["docs/long.md#L1: line 1", "docs/long.md#L2: line 2", "docs/long.md#L3: line 3"]
    assert found[3:] == ["[more than 3 lines match: narrow the pattern or the path]"]


async def test_grep_shows_of_a_long_line_the_part_around_the_match(hands: Hands) -> None:
    (hands.root / "docs" / "wide.md").write_text("x" * 5_000 + " needle " + "y" * 5_000)
    found = await hands.use("grep", pattern="needle")
    assert " needle " in found
    assert len(found) < 340


async def test_grep_names_what_it_did_not_search(hands: Hands) -> None:
    (hands.root / "docs" / "photo.jpg").write_bytes(b"\0bicycle")
    found = await hands.use("grep", pattern="submarine")
    assert "[not searched: 1 files that are no text or too large, such as docs/photo.jpg]" in found


async def test_grep_follows_no_link_out(hands: Hands) -> None:
    (hands.root / "docs" / "leak.md").symlink_to("../../secret.md")
    (hands.root / "docs" / "up").symlink_to("../..")
    assert "secret" not in await hands.use("grep", pattern="bicycle")
    assert "leads out" in await hands.use("grep", pattern="bicycle", path="docs/leak.md", error=True)


@pytest.mark.parametrize("pattern", ["(", "[a", "", "a" * 501, "*"])
async def test_grep_explains_a_pattern_that_is_none(hands: Hands, pattern: str) -> None:
    said = await hands.use("grep", pattern=pattern, error=True)
    assert "pattern" in said or "regular expression" in said


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*$", r"(.*.*.*.*.*)*x$", "(a?)" * 40 + "a{40}b"])
async def test_a_catastrophic_pattern_is_stopped_and_the_loop_runs_on_meanwhile(pattern: str) -> None:
    longest_pause = 0.0

    async def feel_the_pulse() -> None:
        nonlocal longest_pause
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest_pause = max(longest_pause, time.thread_time() - before)

    pulse = asyncio.create_task(feel_the_pulse())
    with pytest.raises(BadRequest, match=r"took longer than 0\.4 seconds"):
        await search(pattern, [("a.md", "a" * 60 + "!\n" + "a" * 3_000 + "!")], 10, seconds=0.4)
    pulse.cancel()
    assert longest_pause < 2.0


async def test_a_cancelled_search_leaves_no_process_behind() -> None:
    running = asyncio.create_task(search(r"(a+)+$", [("a.md", "a" * 60 + "!")], 10, seconds=30))
    started = asyncio.create_task(_child_of_this_process())
    child = await asyncio.wait_for(started, 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not Path(f"/proc/{child}").exists()


async def _child_of_this_process() -> str:
    while True:
        children = Path("/proc/self/task").glob("*/children")
        for pid in " ".join(each.read_text() for each in children).split():
            if "worker.py" in Path(f"/proc/{pid}/cmdline").read_text():
                return pid
        await asyncio.sleep(0)


async def test_a_shared_session_gets_nothing_of_private_memory(hands: Hands) -> None:
    (hands.root / "alias.md").symlink_to("MEMORY.md")
    (hands.root / "docs" / "old").symlink_to("../memory")
    for path in ("MEMORY.md", "user.md", "USER.md", "./docs/../MEMORY.md", "memory/2026-11-01.md", "alias.md",
                 "docs/old/2026-11-01.md", f"{hands.root}/MEMORY.md"):  # fmt: skip
        said = await hands.use("read", path=path, private=False, error=True)
        assert "bicycle" not in said.lower()
        said = await hands.use("grep", pattern="bicycle", path=path, private=False, error=True)
        assert "green" not in said
    assert await hands.use("ls", private=False) == "SOUL.md\nalias.md\ndocs/"
    for path in ("memory", "docs/old", f"{hands.root}/memory"):
        assert "private" in await hands.use("ls", path=path, private=False, error=True)
    assert await hands.use("grep", pattern="bicycle", private=False) == (
        "SOUL.md#L2: The bicycle is red.\n[private memory was left out: this session is not private]"
    )
    assert "bought" not in await hands.use("grep", pattern="bicycle", path="docs/old", private=False)


async def test_a_picture_is_shown_and_not_read_as_text(hands: Hands) -> None:
    picture = BytesIO()
    Pillow.new("RGB", (3000, 1500), "red").save(picture, "PNG")
    (hands.root / "docs" / "red.txt").write_bytes(picture.getvalue())  # what it is counts, not what it is called
    run = ToolRun(SessionKey.main(), "r", True)
    output = await hands.registry.run(run, ToolCall("c", "read", {"path": "docs/red.txt"}))
    assert isinstance(output.content, tuple)
    about, image = output.content
    assert about == Text(f"docs/red.txt (image/png, {len(picture.getvalue()):,} bytes)")
    assert isinstance(image, Image)
    assert Pillow.open(BytesIO(b64decode(image.data))).size == (1200, 600)


async def test_a_picture_larger_than_a_text_may_be_is_shown(hands: Hands) -> None:
    picture = BytesIO()
    with excuse("the test makes a picture"):
        Pillow.effect_noise((1800, 1800), 100).save(picture, "PNG")
    assert len(picture.getvalue()) > 2 * 1024 * 1024
    (hands.root / "noise.png").write_bytes(picture.getvalue())
    output = await hands.registry.run(
        ToolRun(SessionKey.main(), "r", True), ToolCall("c", "read", {"path": "noise.png"})
    )
    assert not output.is_error


async def test_without_pillow_a_small_picture_is_shown_as_it_is_and_a_large_one_says_what_is_missing(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda _: None)
    small = b"\x89PNG\r\n\x1a\n" + bytes(100)
    (hands.root / "small.png").write_bytes(small)
    (hands.root / "large.png").write_bytes(small + bytes(6 * 1024 * 1024))
    run = ToolRun(SessionKey.main(), "r", True)
    output = await hands.registry.run(run, ToolCall("c", "read", {"path": "small.png"}))
    assert output.content[1] == Image(b64encode(small).decode(), "image/png")
    assert "pillow" in await hands.use("read", path="large.png", error=True)


async def test_a_private_picture_is_not_shown_to_a_shared_session(hands: Hands) -> None:
    (hands.root / "memory" / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (hands.root / "docs" / "p.png").symlink_to("../memory/p.png")
    for path in ("memory/p.png", "docs/p.png"):
        assert "private" in await hands.use("read", path=path, private=False, error=True)


async def test_read_fills_a_page_as_long_as_the_run_allows(hands: Hands) -> None:
    (hands.root / "wide.md").write_text("".join("x" * 3_000 + "\n" for _ in range(20)))
    run = ToolRun(SessionKey.main(), "r", True, max_characters=32_000)
    output = await hands.registry.run(run, ToolCall("c", "read", {"path": "wide.md"}))
    assert str(output.content).startswith("wide.md (lines 1-9 of 20)")
    assert "cut here" not in str(output.content)
