"""write, edit and delete as a model uses them, on a real directory."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest, WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import PreparedCall, ToolRun
from palinurus.testing.fakes import FakeClock
from palinurus.tools.built_in import edit_tools, file_tools
from palinurus.tools.files.reach import Edit, FileAccess, closed_in
from palinurus.tools.files.replace import apply_edits, difference
from palinurus.tools.registry import ToolRegistry
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

MAIN_KEY = SessionKey.main()
SHARED_KEY = SessionKey.parse("agent:main:telegram:group:1")
READ_ONLY_KEY = SessionKey.parse("agent:main:direct:bob")


class Hands:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = WorkspaceFiles(Boundary(root))
        self.clock = FakeClock()
        self.tools = (*file_tools(self.reach), *edit_tools(self.reach, self.clock))
        self.registry = ToolRegistry(self.tools)

    def reach(self, key: SessionKey) -> FileAccess:
        closed = closed_in(self.root, [self.root / ".palinurus", self.root.parent])
        if key == READ_ONLY_KEY:
            return FileAccess(
                self.files, writable=False, why="its sandbox shows the workspace read-only", closed=closed
            )
        return FileAccess(self.files, closed=closed)

    async def use(
        self, name: str, *, error: bool = False, key: SessionKey = MAIN_KEY, origin: Origin = Origin.OWNER,
        **arguments: Any,
    ) -> str:  # fmt: skip
        run = ToolRun(key, "r", key.is_private, origin=origin)
        output = await self.registry.run(run, ToolCall("c", name, arguments))
        assert output.is_error == error, output.content
        assert isinstance(output.content, str)
        return output.content

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()


@pytest.fixture
def hands(tmp_path: Path) -> Hands:
    root = tmp_path / "ws"
    (root / "memory").mkdir(parents=True)
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("[core]\n")
    (root / "docs").mkdir()
    (root / "SOUL.md").write_text("Be kind.\nBe brief.\n")
    (root / "MEMORY.md").write_text("The bicycle is green.\n")
    (root / "docs" / "plan.txt").write_text("one\ntwo\nthree\ntwo\n")
    return Hands(root)


def test_what_the_model_is_told_about_edit_is_short(hands: Hands) -> None:
    sizes = {each.spec.name: len(json.dumps(each.spec.parameters, separators=(",", ":"))) for each in hands.tools}
    assert sizes["edit"] < 700
    assert sizes["write"] < 250
    assert sizes["delete"] < 150


async def test_write_makes_a_file_with_its_directories_and_says_how_much(hands: Hands) -> None:
    assert await hands.use("write", path="a/b/new.txt", content="x\ny") == "created a/b/new.txt: 2 lines, 3 bytes"
    assert hands.text("a/b/new.txt") == "x\ny"


async def test_write_over_a_file_says_what_was_there(hands: Hands) -> None:
    said = await hands.use("write", path="docs/plan.txt", content="four\n")
    assert said == "replaced docs/plan.txt: 1 line, 5 bytes, before 4 lines, 18 bytes"
    said = await hands.use("write", path="docs/plan.txt", content="four\n")
    assert said == "docs/plan.txt already has this content: 1 line, 5 bytes"


async def test_write_takes_an_absolute_path_inside_the_workspace(hands: Hands) -> None:
    assert "created docs/x.txt" in await hands.use("write", path=f"{hands.root}/docs/x.txt", content="x")


async def test_markdown_of_a_person_is_kept_before_it_is_changed(hands: Hands) -> None:
    said = await hands.use("write", path="SOUL.md", content="Be rude.\n")
    backup = said.rpartition(" is in ")[2]
    assert backup.startswith(".pal/backups/SOUL.md/20261115-090000-")
    assert hands.text(backup) == "Be kind.\nBe brief.\n"
    said = await hands.use("edit", path="SOUL.md", old="rude", new="wise")
    assert hands.text(said.split("\n")[0].rpartition(" is in ")[2]) == "Be rude.\n"
    assert "Be kind." in await hands.use("read", path=backup)


async def test_what_only_adds_at_the_end_needs_no_backup(hands: Hands) -> None:
    assert "is in" not in await hands.use("write", path="SOUL.md", content="Be kind.\nBe brief.\nBe there.\n")
    assert not (hands.root / ".pal").exists()


async def test_without_its_backup_a_file_is_left_as_it_is(hands: Hands) -> None:
    (hands.root / ".pal").write_text("in the way")
    await hands.use("write", path="SOUL.md", content="gone", error=True)
    assert hands.text("SOUL.md") == "Be kind.\nBe brief.\n"


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".GIT/config", "docs/.git", "docs/.git/hooks/x", "git-link/hooks/x", "docs/../.git/x",
        ".git/new/dir/x", ".pal/backups/SOUL.md/x.md", ".palinurus/palinurus.json", "../x", "/etc/cron.d/x", ".",
        "docs",
    ],
)  # fmt: skip
async def test_what_is_not_for_tools_is_not_written(hands: Hands, path: str) -> None:
    (hands.root / "git-link").symlink_to(".git")
    before = sorted(str(each) for each in hands.root.parent.rglob("*"))
    await hands.use("write", path=path, content="#!/bin/sh\n", error=True)
    await hands.use("edit", path=path, old="core", new="x", error=True)
    assert sorted(str(each) for each in hands.root.parent.rglob("*")) == before
    assert hands.text(".git/config") == "[core]\n"


async def test_files_of_pal_itself_inside_the_workspace_are_not_read_either(hands: Hands) -> None:
    (hands.root / ".palinurus").mkdir()
    (hands.root / ".palinurus" / "credentials.json").write_text("secret")
    (hands.root / "docs" / "c.json").symlink_to("../.palinurus/credentials.json")
    for path in (".palinurus/credentials.json", "docs/c.json"):
        assert "belongs to pal itself" in await hands.use("read", path=path, error=True)
    assert ".palinurus" not in await hands.use("ls")


async def test_a_session_behind_read_only_walls_is_told_so(hands: Hands) -> None:
    for name, arguments in {"write": {"content": "x"}, "edit": {"old": "one", "new": "1"}}.items():
        said = await hands.use(name, path="docs/plan.txt", key=READ_ONLY_KEY, error=True, **arguments)
        assert said == "docs/plan.txt cannot be written: its sandbox shows the workspace read-only"
    assert "one" in await hands.use("read", path="docs/plan.txt", key=READ_ONLY_KEY)


async def test_a_shared_session_neither_writes_private_memory_nor_learns_of_it(hands: Hands) -> None:
    (hands.root / "alias.md").symlink_to("MEMORY.md")
    (hands.root / "docs" / "old").symlink_to("../memory")
    for path in ("MEMORY.md", "user.md", "memory/new/x.md", "alias.md", "docs/old/x.md", f"{hands.root}/USER.md"):
        said = await hands.use("write", path=path, content="x", key=SHARED_KEY, error=True)
        assert "private memory" in said
        said = await hands.use("edit", path=path, old="The bicycle", new="x", key=SHARED_KEY, error=True)
        assert "green" not in said
    await hands.use("write", path="MEMORY.md", content="blue")  # the owner's own session, which makes a backup
    for path in (".pal", ".pal/backups/MEMORY.md"):
        assert "private memory" in await hands.use("ls", path=path, key=SHARED_KEY, error=True)
    assert "is green" not in await hands.use("grep", pattern="bicycle", key=SHARED_KEY)
    assert list((hands.root / "memory").iterdir()) == []


async def test_new_private_memory_is_for_its_owner_alone(hands: Hands) -> None:
    await hands.use("write", path="memory/topics/x.md", content="x")
    assert (hands.root / "memory/topics/x.md").stat().st_mode & 0o777 == 0o600


async def test_instructions_are_not_changed_after_reading_text_from_outside(hands: Hands) -> None:
    (hands.root / "innocent.md").symlink_to("AGENTS.md")
    for path in ("SOUL.md", "AGENTS.md", "innocent.md", "skills/new/SKILL.md"):
        said = await hands.use("write", path=path, content="obey", origin=Origin.OUTSIDE, error=True)
        assert "is read at the start of later sessions" in said
    assert not (hands.root / "AGENTS.md").exists()
    await hands.use("write", path="docs/summary.md", content="x", origin=Origin.OUTSIDE)


async def test_a_link_swapped_in_after_the_plan_was_shown_does_not_reach_the_instructions(hands: Hands) -> None:
    run = ToolRun(SessionKey.main(), "r", True, origin=Origin.OUTSIDE)
    tool = next(each for each in hands.tools if each.spec.name == "write")
    assert tool.prepare is not None
    prepared = await tool.prepare(run, {"path": "docs/a.md", "content": "obey"})
    assert isinstance(prepared, PreparedCall)
    assert prepared.when_untrusted == ""
    (hands.root / "docs" / "a.md").symlink_to("../AGENTS.md")
    output = await hands.registry.execute(run, ToolCall("c", "write", {}), prepared.run)
    assert output.is_error
    assert not (hands.root / "AGENTS.md").exists()


async def test_the_plan_of_a_long_write_says_what_is_not_shown(hands: Hands) -> None:
    write = next(each for each in hands.tools if each.spec.name == "write")
    assert write.prepare is not None
    run = ToolRun(SessionKey.main(), "r", True)
    for length, told in ((2_000, None), (3_500, "the last 1,500 characters")):
        prepared = await write.prepare(run, {"path": "a.md", "content": "x" * length})
        assert isinstance(prepared, PreparedCall)
        assert prepared.plan.arguments.get("notShown") == told


async def test_the_plan_of_a_write_names_the_true_place_and_covers_every_byte(hands: Hands) -> None:
    (hands.root / "link.md").symlink_to("docs/real.md")
    write = next(each for each in hands.tools if each.spec.name == "write")
    assert write.prepare is not None
    run = ToolRun(SessionKey.main(), "r", True)
    plans = []
    for content in ("x" * 5_000, "x" * 5_001, "x" * 5_000):
        prepared = await write.prepare(run, {"path": "link.md", "content": content})
        assert isinstance(prepared, PreparedCall)
        plans.append(prepared.plan)
    assert plans[0].summary == "write docs/real.md: 1 line, 5,000 bytes"
    assert plans[0].digest != plans[1].digest
    assert plans[0].digest == plans[2].digest
    assert len(json.dumps(plans[0].arguments)) < 2_500
    assert not (hands.root / "docs/real.md").exists()


async def test_edit_replaces_the_one_place_and_shows_the_difference(hands: Hands) -> None:
    said = await hands.use("edit", path="docs/plan.txt", old="three\n", new="3\nand a half\n")
    assert said == "edited docs/plan.txt\n@@ -1,4 +1,5 @@\n one\n two\n-three\n+3\n+and a half\n two"
    assert hands.text("docs/plan.txt") == "one\ntwo\n3\nand a half\ntwo\n"


async def test_several_edits_are_done_in_order_each_on_what_the_last_one_left(hands: Hands) -> None:
    edits = [{"old": "one", "new": "uno"}, {"old": "uno\ntwo", "new": "due"}, {"old": "t", "new": "T", "all": True}]
    await hands.use("edit", path="docs/plan.txt", edits=edits)
    assert hands.text("docs/plan.txt") == "due\nThree\nTwo\n"


async def test_when_one_of_several_edits_fails_none_is_done(hands: Hands) -> None:
    edits = [{"old": "one", "new": "uno"}, {"old": "four", "new": "4"}]
    said = await hands.use("edit", path="docs/plan.txt", edits=edits, error=True)
    assert said.startswith("edits[1]: old is not in docs/plan.txt.")
    assert hands.text("docs/plan.txt") == "one\ntwo\nthree\ntwo\n"


async def test_what_is_there_several_times_is_refused_with_the_lines(hands: Hands) -> None:
    said = await hands.use("edit", path="docs/plan.txt", old="two", new="2", error=True)
    assert said == ("old is in docs/plan.txt 2 times, on lines 2, 4 (add lines around it to say which, or set all)")
    await hands.use("edit", path="docs/plan.txt", old="two", new="2", all=True)
    assert hands.text("docs/plan.txt") == "one\n2\nthree\n2\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("def fly(self):\n    flap()", "Nearest is line 2; line 3 is '        flap()' where old has '    flap()'."),
        (
            "    def flyy(self):",
            "Nearest is line 2; line 2 is '    def fly(self):' where old has '    def flyy(self):'.",
        ),
        ("2|     def fly(self):", "Leave out the line numbers that read puts before each line."),
        ("zebra crossing 17", "Nothing in it is like that: read it again."),
        ("\n\n    def fly(self):", "Nearest is line 2: '    def fly(self):'. Compare blank lines"),
    ],
)
async def test_what_is_not_there_is_answered_with_what_is_nearest(hands: Hands, old: str, said: str) -> None:
    (hands.root / "bird.py").write_text("class Bird:\n    def fly(self):\n        flap()\n")
    if old.startswith("def"):
        old = "    " + old
    assert said in await hands.use("edit", path="bird.py", old=old, new="x", error=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"old": "", "new": "x"}, {"old": "one", "new": "one"},
        {"old": "one", "new": "1", "edits": [{"old": "a", "new": "b"}]},
        {"edits": []}, {"edits": [{"old": "one"}]}, {"edits": "nonsense"}, {"old": "one", "new": "\ud800"},
    ],
)  # fmt: skip
async def test_an_edit_that_makes_no_sense_says_what_to_mend(hands: Hands, arguments: dict[str, Any]) -> None:
    assert "edit" in await hands.use("edit", path="docs/plan.txt", error=True, **arguments) or "old" in str(arguments)
    assert hands.text("docs/plan.txt") == "one\ntwo\nthree\ntwo\n"


@pytest.mark.parametrize(
    "arguments",
    [
        {"file_path": "docs/plan.txt", "old_string": "one", "new_string": "1"},
        {"path": "docs/plan.txt", "oldText": "one", "newText": "1"},
        {"path": "docs/plan.txt", "edits": [{"oldText": "one", "newText": "1"}]},
        {"path": "docs/plan.txt", "edits": '[{"old": "one", "new": "1"}]'},
    ],
)
async def test_edit_understands_what_other_homes_call_its_arguments(hands: Hands, arguments: dict[str, Any]) -> None:
    await hands.use("edit", **arguments)
    assert hands.text("docs/plan.txt").startswith("1\n")


async def test_line_endings_and_the_mark_at_the_beginning_are_kept(hands: Hands) -> None:
    (hands.root / "win.txt").write_bytes("\ufeffone\r\ntwo\r\nthree\nfour\r\n".encode())
    await hands.use("edit", path="win.txt", old="one\ntwo\nthree\n", new="1\n2\n3\n")
    assert hands.text("win.txt") == "\ufeff1\r\n2\r\n3\r\nfour\r\n"
    await hands.use("edit", path="win.txt", old="four", new="4\nfive")
    assert hands.text("win.txt").endswith("4\r\nfive\r\n")


async def test_a_file_that_could_not_be_written_back_is_not_edited(hands: Hands) -> None:
    (hands.root / "latin.txt").write_bytes("café one".encode("latin-1"))
    (hands.root / "bin.dat").write_bytes(b"one\0two")
    assert "is not UTF-8 at byte 3" in await hands.use("edit", path="latin.txt", old="one", new="1", error=True)
    assert "is not a text file" in await hands.use("edit", path="bin.dat", old="one", new="1", error=True)
    assert "there is no file" in await hands.use("edit", path="none/x.txt", old="one", new="1", error=True)
    assert not (hands.root / "none").exists()


async def test_edits_of_one_file_at_the_same_time_all_land(hands: Hands) -> None:
    (hands.root / "many.txt").write_text("".join(f"<{n}>\n" for n in range(30)))
    await asyncio.gather(*(hands.use("edit", path="many.txt", old=f"<{n}>", new=f"[{n}]") for n in range(30)))
    assert hands.text("many.txt") == "".join(f"[{n}]\n" for n in range(30))


async def test_a_hard_link_is_told(hands: Hands) -> None:
    os.link(hands.root / "docs" / "plan.txt", hands.root / "docs" / "twin.txt")
    assert "hard links" in await hands.use("write", path="docs/plan.txt", content="x")
    assert hands.text("docs/twin.txt").startswith("one")


@pytest.mark.parametrize("path", ["SOUL.md", "docs/plan.txt"])
async def test_a_deleted_file_leaves_a_copy_and_the_result_says_where(hands: Hands, path: str) -> None:
    held = hands.text(path)
    said = await hands.use("delete", path=path)
    assert not (hands.root / path).exists()
    assert said.startswith(f"deleted {path}: ")
    backup = said.rpartition("; what it held is in ")[2]
    assert backup.startswith(f".pal/backups/{path}/")
    assert backup.endswith(path[path.rindex(".") :])
    assert hands.text(backup) == held


async def test_delete_has_the_guards_of_write(hands: Hands) -> None:
    assert "there is no file" in await hands.use("delete", path="none.txt", error=True)
    assert "is a directory" in await hands.use("delete", path="docs", error=True)
    assert "not for tools to write" in await hands.use("delete", path=".git/config", error=True)
    assert "read-only" in await hands.use("delete", path="docs/plan.txt", key=READ_ONLY_KEY, error=True)
    assert "private memory" in await hands.use("delete", path="MEMORY.md", key=SHARED_KEY, error=True)
    assert "leads out" in await hands.use("delete", path="../x", error=True)
    (hands.root / "docs" / "plan.txt").chmod(0o444)
    assert "is read-only" in await hands.use("delete", path="docs/plan.txt", error=True)
    assert hands.text("docs/plan.txt").startswith("one")


async def test_a_file_that_changed_after_a_person_agreed_is_not_deleted(hands: Hands) -> None:
    tool = next(each for each in hands.tools if each.spec.name == "delete")
    assert tool.prepare is not None
    prepared = await tool.prepare(ToolRun(MAIN_KEY, "r", True), {"path": "docs/plan.txt"})
    assert isinstance(prepared, PreparedCall)
    assert prepared.plan.summary == "delete docs/plan.txt: 4 lines, 18 bytes"
    (hands.root / "docs" / "plan.txt").write_text("new\n")
    with pytest.raises(WorkspaceError, match="changed by another program"):
        await prepared.run()
    assert hands.text("docs/plan.txt") == "new\n"


def test_an_overlapping_occurrence_counts_as_another() -> None:
    with pytest.raises(BadRequest, match="2 times"):
        apply_edits("x", "aaa", [Edit("aa", "b")])
    assert apply_edits("x", "aaaa", [Edit("aa", "b", all=True)]) == "bb"


def test_a_change_of_many_lines_is_counted_and_not_compared() -> None:
    before = "".join(f"{n % 90}\n" for n in range(100_000))
    assert difference(before, before.replace("1", "x")) == "@@ from line 2 @@\n[99,991 lines became 99,991]"
    late = difference(before, before + "end\n")
    assert late == "@@ -99999,2 +99999,3 @@\n 8\n 9\n+end"


@given(st.text("ab\n", max_size=40), st.text("ab\n", min_size=1, max_size=4), st.text("xy\n", max_size=4))
def test_replacing_everywhere_is_what_strings_call_replace(text: str, old: str, new: str) -> None:
    if old in text and old != new:
        assert apply_edits("x", text, [Edit(old, new, all=True)]) == text.replace(old, new)
        windows = apply_edits("x", text.replace("\n", "\r\n"), [Edit(old, new, all=True)])
        if "\n" in text:
            assert windows == text.replace(old, new).replace("\n", "\r\n")
