"""find as a model uses it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ToolCall
from palinurus.domain.tool import ToolRun
from palinurus.tools.built_in import find_tool
from palinurus.tools.files.reader import expand_glob, matches_glob
from palinurus.tools.registry import ToolRegistry
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

SHARED_KEY = SessionKey.parse("agent:main:telegram:group:1")
FILES = ("SOUL.md", "MEMORY.md", "a/One.md", "a/b/two.md", "a/b/two.txt", "memory/day.md", ".hid/x.md", ".git/x.md")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for age, name in enumerate(FILES):
        file = tmp_path / "ws" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "out.md").write_text("outside")
    (tmp_path / "ws" / "a" / "up").symlink_to("../..")
    return tmp_path / "ws"


async def use(root: Path, *, private: bool = True, error: bool = False, **arguments: Any) -> str:
    key = SessionKey.main() if private else SHARED_KEY
    registry = ToolRegistry((find_tool(WorkspaceFiles(Boundary(root))),))
    output = await registry.run(ToolRun(key, "r", private), ToolCall("c", "find", arguments))
    assert output.is_error == error, output.content
    return str(output.content)


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*.md", ".", "MEMORY.md SOUL.md a/One.md a/b/two.md memory/day.md"),
        ("one.md", ".", "a/One.md"),
        ("**/*.md", "a", "a/One.md a/b/two.md"),
        ("./*.md", ".", "MEMORY.md SOUL.md"),
        ("a/*.md", ".", "a/One.md"),
        ("a/**", ".", "a/One.md a/b/two.md a/b/two.txt"),
        ("b/*.{md,txt}", "a", "a/b/two.md a/b/two.txt"),
        ("t?o.[mt]*", ".", "a/b/two.md a/b/two.txt"),
        (".hid/*", ".", ".hid/x.md"),
    ],
)
async def test_names_are_found_by_their_pattern(root: Path, pattern: str, path: str, found: str) -> None:
    assert (await use(root, pattern=pattern, path=path)).split("\n") == found.split()


async def test_directories_are_found_and_marked(root: Path) -> None:
    assert await use(root, pattern="*", kind="directory") == "a/\na/b/\nmemory/"


async def test_the_newest_come_first_when_asked(root: Path) -> None:
    assert await use(root, pattern="*.md", path="a", sort="newest") == "a/One.md\na/b/two.md"
    os.utime(root / "a/b/two.md", (2_000_000, 2_000_000))
    assert await use(root, pattern="*.md", path="a", sort="newest") == "a/b/two.md\na/One.md"


async def test_what_is_left_out_is_told(root: Path) -> None:
    said = await use(root, pattern="*.md", max=2)
    assert said == "MEMORY.md\nSOUL.md\n[3 more match: narrow the pattern or the path]"
    assert await use(root, pattern="*.pdf") == "no file in . matches '*.pdf'"


async def test_a_shared_session_finds_nothing_of_private_memory(root: Path) -> None:
    (root / "alias").symlink_to("memory")
    assert await use(root, pattern="*.md", private=False) == "SOUL.md\na/One.md\na/b/two.md"
    for path in ("memory", "alias"):
        assert "private memory" in await use(root, pattern="*", path=path, private=False, error=True)


@pytest.mark.parametrize("arguments", [{"pattern": ""}, {"pattern": "x" * 301}, {"pattern": "*", "path": ".."},
                                       {"pattern": "*", "path": "a/up"}, {"pattern": "*", "path": "SOUL.md"},
                                       {"pattern": "{a,b}" * 7}])  # fmt: skip
async def test_what_cannot_be_searched_says_why(root: Path, arguments: dict[str, Any]) -> None:
    assert "out.md" not in await use(root, error=True, **arguments)


def test_a_pattern_of_many_stars_is_quick() -> None:
    patterns = expand_glob("**/" * 20 + "*a" * 60 + "b")
    assert not matches_glob(patterns, "/".join(["a" * 200] * 30))


@given(st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=6))
def test_every_path_fits_itself_and_the_widest_pattern(parts: list[str]) -> None:
    path = "/".join(parts)
    assert matches_glob(expand_glob(f"./{path}"), path)
    assert matches_glob(expand_glob("**"), path)
    assert not matches_glob(expand_glob(f"./{path}x"), path)
