"""apply_patch: several files at once, all or none."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import ToolRun
from palinurus.testing.fakes import FakeClock
from palinurus.tools.built_in import patch_tool
from palinurus.tools.files.patch import apply_hunks, parse_patch
from palinurus.tools.registry import ToolRegistry
from palinurus.workspace import write
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

SHARED_KEY = SessionKey.parse("agent:main:telegram:group:1")


class Hands:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry = ToolRegistry((patch_tool(WorkspaceFiles(Boundary(root)), FakeClock()),))

    async def patch(self, *lines: str, error: bool = False, private: bool = True, **more: Any) -> str:
        text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
        run = ToolRun(SessionKey.main() if private else SHARED_KEY, "r", private, **more)
        output = await self.registry.run(run, ToolCall("c", "apply_patch", {"input": text}))
        assert output.is_error == error, output.content
        return str(output.content)

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and ".pal" not in path.parts
        }


APP = "import os\n\ndef start():\n    go()\n\ndef stop():\n    go()\n"


@pytest.fixture
def hands(tmp_path: Path) -> Hands:
    (tmp_path / "ws" / "src").mkdir(parents=True)
    (tmp_path / "ws" / "src" / "app.py").write_text(APP)
    (tmp_path / "ws" / "old.md").write_text("old\n")
    (tmp_path / "ws" / "MEMORY.md").write_text("private\n")
    return Hands(tmp_path / "ws")


async def test_a_patch_adds_updates_moves_and_deletes(hands: Hands) -> None:
    said = await hands.patch(
        "*** Add File: docs/new.md", "+# New", "+", "+text",
        "*** Update File: src/app.py", "*** Move to: src/main.py", "@@ def stop():", "-    go()", "+    halt()",
        "+    rest()",
        "*** Delete File: old.md",
    )  # fmt: skip
    assert hands.files() == {
        "MEMORY.md": "private\n",
        "docs/new.md": "# New\n\ntext\n",
        "src/main.py": APP[::-1].replace("    go()"[::-1], "    halt()\n    rest()"[::-1], 1)[::-1],
    }
    assert said.split("\n")[:3] == ["created docs/new.md", "created src/main.py", "deleted src/app.py"]
    assert said.split("\n")[3].startswith("deleted old.md; what it held is in .pal/backups/old.md/")


async def test_when_one_file_does_not_fit_none_is_touched(hands: Hands) -> None:
    before = hands.files()
    said = await hands.patch(
        "*** Add File: new.md", "+x", "*** Delete File: old.md",
        "*** Update File: src/app.py", "@@", " import os", "-def begin():", "+def end():",
        error=True,
    )  # fmt: skip
    assert said == (
        "hunk 1 of src/app.py does not fit after line 0. Nearest is line 1; line 2 is '' where old has 'def begin():'."
    )
    assert hands.files() == before


async def test_a_failure_in_the_middle_is_told_to_the_file(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    (hands.root / "b").mkdir()
    rename = write.os.rename

    def failing(source: str, target: str, **more: int) -> None:
        if target == "app.py":
            raise OSError(28, "No space left on device")
        rename(source, target, **more)

    monkeypatch.setattr(write.os, "rename", failing)
    said = await hands.patch(
        "*** Add File: a.txt", "+x", "*** Delete File: old.md",
        "*** Update File: src/app.py", "-import os", "+import sys", "*** Add File: z.txt", "+z",
        error=True,
    )  # fmt: skip
    assert said == (
        "src/app.py failed: src/app.py cannot be used: no space left on device (free some space on the disk)\n"
        "created a.txt\nnot tried: z.txt, old.md"
    )
    assert set(hands.files()) == {"MEMORY.md", "a.txt", "old.md", "src/app.py"}


@pytest.mark.parametrize(
    "path", ["../x.md", "/etc/x", ".git/hooks/post-commit", "sub/.git", ".pal/x", "link/../../x.md", "door/x.md"]
)
async def test_no_section_leads_where_tools_may_not_write(hands: Hands, path: str) -> None:
    (hands.root / "door").symlink_to("..")
    before = hands.files()
    await hands.patch("*** Add File: ok.md", "+x", f"*** Add File: {path}", "+x", error=True)
    await hands.patch("*** Update File: old.md", f"*** Move to: {path}", "-old", "+new", error=True)
    assert hands.files() == before


async def test_private_memory_is_closed_to_a_shared_session_also_by_moving_it(hands: Hands) -> None:
    (hands.root / "alias.md").symlink_to("MEMORY.md")
    for path in ("MEMORY.md", "alias.md"):
        said = await hands.patch(f"*** Update File: {path}", "*** Move to: public.md", private=False, error=True)
        assert "private memory" in said
        said = await hands.patch(f"*** Update File: {path}", "-guess", "+x", private=False, error=True)
        assert "'private'" not in said
    assert "public.md" not in hands.files()


async def test_instructions_are_not_patched_after_reading_text_from_outside(hands: Hands) -> None:
    said = await hands.patch("*** Add File: AGENTS.md", "+obey", error=True, origin=Origin.OUTSIDE)
    assert "is read at the start of later sessions" in said


async def test_two_sections_of_one_file_follow_each_other(hands: Hands) -> None:
    (hands.root / "same.md").symlink_to("old.md")
    await hands.patch("*** Update File: old.md", "-old", "+new", "*** Update File: same.md", " new", "+newer")
    assert (hands.root / "old.md").read_text() == "new\nnewer\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["*** Add File: old.md", "+x"], "old.md already exists"),
        (["*** Delete File: none.md"], "there is no file none.md"),
        (["*** Update File: none.md", "-a", "+b"], "there is no file none.md"),
        (["*** Update File: old.md", "*** Move to: src/app.py", "-old", "+x"], "src/app.py already exists"),
        (["*** Update File: old.md"], "nothing to change in old.md"),
        (["*** Update File: old.md", " old"], "at least one line"),
        (["*** Update File: old.md", "@@ nowhere", "-old"], "no line 'nowhere' after line 0"),
        (["*** Update File: old.md", "old"], "line 3 of the patch, 'old': each line of a hunk begins with"),
        (["*** Add File: x.md", "x"], "line 3 of the patch, 'x': each line of a new file begins with"),
        (["hello"], "line 2 of the patch, 'hello': expected"),
        ([], "the patch names no file"),
    ],
)
async def test_a_patch_that_cannot_be_applied_says_where_and_why(hands: Hands, lines: list[str], said: str) -> None:
    assert said in await hands.patch(*lines, error=True)


def test_a_patch_that_was_cut_off_is_refused() -> None:
    for text in ("*** Begin Patch\n*** Add File: x\n+y", "", "*** Begin Patch", "*** Add File: x\n*** End Patch"):
        with pytest.raises(BadRequest, match="the patch does not"):
            parse_patch(text)


def hunks(*lines: str) -> Any:
    (section,) = parse_patch("\n".join(["*** Begin Patch", "*** Update File: x", *lines, "*** End Patch"]))
    return section.hunks


@pytest.mark.parametrize(
    ("text", "lines", "after"),
    [
        ("a\nb\nc\n", ["-b", "+B"], "a\nB\nc\n"),
        ("a\r\nb\r\n", ["-b", "+B", "+C"], "a\r\nB\r\nC\r\n"),
        ("\ufeffa\nb", ["-a", "+A"], "\ufeffA\nb"),
        ("a\nb", ["-b", "+B"], "a\nB"),
        ("  a  \n\tb\n", [" a", "-b", "+c"], "  a  \nc\n"),  # what stays, stays as it is in the file
        ("x\nend\nx\n", ["@@", "-x", "+y", "*** End of File"], "x\nend\ny\n"),
        ("a\n", ["@@", "+b"], "a\nb\n"),
        ("", ["+a"], "a\n"),
        ("a\n", ["-a"], ""),
        ("one\n\ntwo\n", [" one", "", "-two", "+2"], "one\n\n2\n"),
        ("def f\n  x\ndef g\n  x\n", ["@@ def g", "-  x", "+  y"], "def f\n  x\ndef g\n  y\n"),
        ("class A\ndef g\n  x\nclass B\ndef g\n  x\n", ["@@ class B", "@@ def g", "-  x", "+  y"],
         "class A\ndef g\n  x\nclass B\ndef g\n  y\n"),
        ("a\nb\n", ["@@ -1,2 +1,2 @@", "-b", "+c", ""], "a\nc\n"),
    ],
)  # fmt: skip
def test_a_hunk_lands_where_its_lines_are(text: str, lines: list[str], after: str) -> None:
    assert apply_hunks("x", text, hunks(*lines)) == after


LINES = st.lists(st.text("ab ", max_size=3), min_size=1, max_size=8)


@given(LINES, LINES)
def test_a_patch_of_all_lines_makes_one_text_into_the_other(before: list[str], after: list[str]) -> None:
    text = "".join(f"{line}\n" for line in before)
    changes = hunks("@@", *(f"-{line}" for line in before), *(f"+{line}" for line in after))
    assert apply_hunks("x", text, changes) == "".join(f"{line}\n" for line in after)


SAYINGS = st.sampled_from(["@@", "@@ a", " a", "-a", "+b", "", "*** End of File", "*** Add File: y", "x", "*** "])


@given(st.lists(SAYINGS))
def test_whatever_a_patch_says_the_answer_is_a_text_or_an_error_of_ours(lines: list[str]) -> None:
    with suppress(PalinurusError):
        sections = parse_patch("\n".join(["*** Begin Patch", "*** Update File: x", *lines, "*** End Patch"]))
        assert apply_hunks("x", "a\nb\na\n", sections[0].hunks) != "a\nb\na\n"
