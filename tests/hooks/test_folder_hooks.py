"""Hooks in folders: which are on, that exactly the enabled content runs, and that only a person enables it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from hook_home import OpenHome, configure, opened, write_hook

from palinurus.config.home import Home
from palinurus.domain.errors import NotFound, Stale
from palinurus.domain.hooks import HookLimits
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.tool import PreparedCall, ToolRun
from palinurus.extensions.hooks import folders
from palinurus.extensions.hooks.folders import HookInfo, read_content
from palinurus.extensions.hooks.operations import disable_hook, enable_hook, list_hooks, show_hook
from palinurus.runtime.table import TABLE
from support.behaviours import Calls, Says

NOTE = """
async def handle(event):
    with open({file!r}, "a") as file:
        file.write(event.context["content"] + "\\n")
"""
BLOCK = """
def handle(event):
    return {"block": True, "blockReason": "the hook says no"}
"""


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    return tmp_path / "noted.txt"


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def infos(pal: OpenHome) -> dict[str, HookInfo]:
    return {each.name: each for each in (await list_hooks(pal.services)).hooks}


async def test_a_workspace_hook_runs_only_as_a_person_enabled_it(home: Home, workspace: Path, noted: Path) -> None:
    folder = write_hook(workspace / "hooks", "noter", NOTE.format(file=str(noted)), "message:received")
    async with opened(home) as pal:
        await pal.hears("before")
        assert lines(noted) == []
        assert "not enabled" in (await infos(pal))["noter"].reasons[0]
        assert (await enable_hook(pal.services, name="noter")).state == "on"
        await pal.hears("enabled")
        (folder / "handler.py").write_text(NOTE.format(file=str(noted)) + "# and more\n")
        await pal.hears("edited")
        changed = (await infos(pal))["noter"]
        assert (changed.state, changed.is_changed) == ("off", True)
        assert "changed since it was enabled" in changed.reasons[0]
        (folder / "handler.py").write_text(NOTE.format(file=str(noted)))
        await pal.hears("as it was")
        (folder / "helper.py").write_text("x = 1")
        await pal.hears("a file beside it")
        await disable_hook(pal.services, name="noter")
        (folder / "helper.py").unlink()
        await pal.hears("disabled")
    assert lines(noted) == ["enabled", "as it was"]
    async with opened(home) as pal:  # the decision outlives the process, like the hook itself
        await enable_hook(pal.services, name="noter")
    async with opened(home) as pal:
        await pal.hears("after a restart")
    assert lines(noted) == ["enabled", "as it was", "after a restart"]


async def test_what_was_shown_is_what_is_enabled(home: Home, workspace: Path, noted: Path) -> None:
    folder = write_hook(workspace / "hooks", "noter", NOTE.format(file=str(noted)), "message:received")
    async with opened(home) as pal:
        page = await show_hook(pal.services, name="noter")
        assert "event.context" in page.handler
        (folder / "handler.py").write_text("import os  # something else")
        with pytest.raises(Stale):
            await enable_hook(pal.services, name="noter", digest=page.hook.digest)
        assert (await infos(pal))["noter"].state == "off"
        with pytest.raises(NotFound, match="did you mean noter"):
            await enable_hook(pal.services, name="nter")


async def test_an_agent_cannot_enable_one(home: Home, workspace: Path, noted: Path) -> None:
    write_hook(workspace / "hooks", "noter", NOTE.format(file=str(noted)), "message:received")
    async with opened(home) as pal:
        tools = {each.spec.name: each for each in await pal.services.toolsets.tools("main")}
        assert not [name for name in tools if "hook" in name]
        run = ToolRun(SessionKey.main(), "r", private=True, origin=Origin.OUTSIDE)
        prepare = tools["write"].prepare
        assert prepare is not None
        for path in ("hooks/noter/handler.py", "Hooks/new/HOOK.md", "BOOT.md"):
            prepared = await prepare(run, {"path": path, "content": "x"})
            assert isinstance(prepared, PreparedCall)
            assert prepared.when_untrusted
        pal.says(Calls(("write", {"path": "../home/hooks/enabled.json", "content": "{}"})), Says("done"))
        await pal.hears("enable it yourself")
        assert (await pal.results())[-1].is_error
        assert not (home.root / "hooks").exists()
    for name in ("hooks.enable", "hooks.disable"):
        row = TABLE.get(name)
        assert (row.scope, getattr(row, "mcp", None)) == ("admin", None)


async def test_hooks_of_the_home_and_of_further_folders_are_on_unless_the_config_says_no(
    home: Home, tmp_path: Path, noted: Path
) -> None:
    write_hook(home.root / "hooks", "managed", NOTE.format(file=str(noted)), "message:received", priority=1)
    write_hook(tmp_path / "shared", "extra", NOTE.format(file=str(noted)), "message")
    hooks = {"internal": {"load": {"extraDirs": [str(tmp_path / "shared")]}}}
    async with opened(home, hooks=hooks) as pal:
        await pal.hears("one")
        assert lines(noted)[:2] == ["one", "one"]
        await disable_hook(pal.services, name="extra")
        await disable_hook(pal.services, name="managed")
        assert {(await infos(pal))[name].state for name in ("managed", "extra")} == {"off"}
        noted.unlink()
        await pal.hears("two")
        assert lines(noted) == []
        await enable_hook(pal.services, name="managed")
        await pal.hears("three")
    assert lines(noted) == ["three"]


async def test_everything_is_off_where_hooks_are(home: Home, noted: Path) -> None:
    write_hook(home.root / "hooks", "managed", NOTE.format(file=str(noted)), "message:received")
    async with opened(home, hooks={"internal": {"enabled": False}}) as pal:
        await pal.hears("one")
        assert (await infos(pal))["managed"].reasons == ("hooks.internal.enabled is false",)
    assert lines(noted) == []


async def test_a_folder_that_an_agent_can_write_needs_a_person_wherever_the_config_names_it(
    home: Home, workspace: Path, noted: Path
) -> None:
    write_hook(workspace / "team", "sneaky", NOTE.format(file=str(noted)), "message:received")
    async with opened(home, hooks={"internal": {"load": {"extraDirs": [str(workspace / "team")]}}}) as pal:
        await pal.hears("one")
        assert (await infos(pal))["sneaky"].tier == "workspace"
    assert lines(noted) == []


@pytest.mark.parametrize("how", ["edited", "events removed", "gone", "unreadable"])
async def test_a_gate_that_is_changed_after_it_was_enabled_blocks_until_a_person_decides(
    home: Home, workspace: Path, how: str
) -> None:
    folder = write_hook(workspace / "hooks", "guard", "def handle(event): pass\n", "before_tool_call")
    async with opened(home) as pal:
        await enable_hook(pal.services, name="guard")
        pal.says(Calls(("ls", {})), Says("done"))
        await pal.hears("look")
        assert not (await pal.results())[-1].is_error
        match how:
            case "edited":
                (folder / "handler.py").write_text("def handle(event): return None\n")
            case "events removed":
                write_hook(workspace / "hooks", "guard", "def handle(event): pass\n", "message:sent")
            case "gone":
                shutil.rmtree(folder)
            case "unreadable":
                (folder / "HOOK.md").write_text("nothing")
        pal.says(Calls(("ls", {})), Says("done"))
        await pal.hears("look")
        blocked = (await pal.results())[-1]
        assert blocked.is_error
        assert "changed since it was enabled" in blocked.text
        await disable_hook(pal.services, name="guard")
        pal.says(Calls(("ls", {})), Says("done"))
        await pal.hears("look")
        assert not (await pal.results())[-1].is_error


async def test_a_gate_in_a_folder_blocks_and_one_that_hangs_blocks_too(home: Home) -> None:
    write_hook(home.root / "hooks", "guard", BLOCK, "before_tool_call")
    async with opened(home) as pal:
        pal.says(Calls(("ls", {})), Says("done"))
        await pal.hears("look")
        assert "hook:guard: the hook says no" in (await pal.results())[-1].text
        write_hook(
            home.root / "hooks", "guard", "import time\nasync def handle(event): time.sleep(60)\n", "before_tool_call"
        )
        pal.services.hooks.limits = HookLimits(gate_seconds=0.2)
        pal.says(*[Calls(("ls", {}))] * 3, Says("done"))
        began = time.monotonic()
        await pal.hears("look")
        assert "not done within 0.2 s" in (await pal.results())[-1].text
        assert time.monotonic() - began < 55  # nobody waited for the thread
        assert (await infos(pal))["guard"].state == "disabled"
        (warning,) = [line for line in pal.services.warnings() if "guard" in line]
        assert "`pal hooks disable guard`" in warning
        assert (await enable_hook(pal.services, name="guard")).state == "on"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"handler.ts": "export default 1"}, "not supported: JavaScript (handler.ts)"),
        ({}, "it has no handler.py"),
        ({"handler.py": "", "HOOK.md": "nothing"}, "it has no front matter"),
        ({"handler.py": "", "HOOK.md": "---\nname: x\ndescription: y\n---\n"}, "it names no events"),
        ({"handler.py": "", "big.bin": "x" * 1_000_001}, "larger than"),
    ],
)
async def test_what_cannot_run_is_listed_with_its_reason(home: Home, files: dict[str, str], why: str) -> None:
    folder = write_hook(home.root / "hooks", "odd", "", "message")
    (folder / "handler.py").unlink()
    for name, text in files.items():
        (folder / name).write_text(text)
    async with opened(home) as pal:
        found = next(each for each in (await list_hooks(pal.services)).hooks if each.tier == "managed")
        assert why in "; ".join(found.reasons)
        assert (await pal.hears("hello")).status == "ok"


async def test_what_it_requires_decides_as_for_skills(home: Home, noted: Path) -> None:
    handler = NOTE.format(file=str(noted))
    write_hook(home.root / "hooks", "a", handler, "message:received", requires={"bins": ["no-such-program"]})
    write_hook(home.root / "hooks", "b", handler, "message:received", os=["plan9"])
    write_hook(home.root / "hooks", "c", handler, "message:received", requires={"env": ["TIDE_KEY"]})
    write_hook(home.root / "hooks", "d", handler, "message:received", requires={"env": ["OTHER_KEY"]}, hookKey="dee")
    hooks = {"internal": {"entries": {"dee": {"env": {"OTHER_KEY": "abc"}}}}}
    async with opened(home, hooks=hooks) as pal:
        found = await infos(pal)
        assert found["a"].reasons == ("missing programs: no-such-program",)
        assert found["b"].reasons == ("only for plan9",)
        assert found["c"].reasons == ("variables that are not set: TIDE_KEY",)
        assert found["d"].state == "on"
        await pal.hears("one")
    assert lines(noted) == ["one"]


async def test_a_handler_gets_its_variables_and_nobody_elses(home: Home, noted: Path) -> None:
    handler = f"from pathlib import Path\ndef handle(event):\n    Path({str(noted)!r}).write_text(repr(event.env))\n"
    write_hook(home.root / "hooks", "keyed", handler, "message:received")
    entries = {"keyed": {"env": {"TIDE_KEY": "${SECRET_TIDE}", "PLAIN": "x"}}, "other": {"env": {"OTHER": "y"}}}
    async with opened(home, {"SECRET_TIDE": "06:12"}, hooks={"internal": {"entries": entries}}) as pal:
        await pal.hears("one")
    assert noted.read_text() == "{'TIDE_KEY': '06:12', 'PLAIN': 'x'}"


async def test_a_workspace_hook_hears_of_its_own_agent_only(home: Home, workspace: Path, noted: Path) -> None:
    write_hook(workspace / "hooks", "noter", NOTE.format(file=str(noted)), "message:received")
    other = workspace.parent / "other"
    other.mkdir()
    agents = {
        "defaults": {"workspace": str(workspace)},
        "list": [{"id": "main"}, {"id": "two", "workspace": str(other)}],
    }
    configure(home, agents=agents)
    async with opened(home) as pal:
        await enable_hook(pal.services, name="noter")
        await pal.hears("mine")
        await pal.hears("theirs", key="agent:two:main")
    assert lines(noted) == ["mine"]


async def test_a_link_in_a_hook_is_refused(home: Home, tmp_path: Path) -> None:
    folder = write_hook(home.root / "hooks", "linked", "", "message")
    (tmp_path / "elsewhere.py").write_text("def handle(event): pass")
    (folder / "handler.py").unlink()
    (folder / "handler.py").symlink_to(tmp_path / "elsewhere.py")
    (home.root / "hooks" / "whole").symlink_to(folder)
    async with opened(home) as pal:
        found = [each for each in (await list_hooks(pal.services)).hooks if each.tier == "managed"]
        assert [(each.name, each.reasons) for each in found] == [("linked", ("it has a link: handler.py",))]


async def test_of_two_with_one_name_the_workspace_does_not_win(home: Home, workspace: Path, noted: Path) -> None:
    write_hook(home.root / "hooks", "noter", NOTE.format(file=str(noted)), "message:received")
    write_hook(workspace / "hooks", "noter", BLOCK, "before_tool_call")
    write_hook(workspace / "hooks", "boot-md", BLOCK, "before_tool_call")
    async with opened(home) as pal:
        found = [each for each in (await list_hooks(pal.services)).hooks if each.tier == "workspace"]
        assert all("another hook has its name" in each.reasons[0] for each in found)
        await pal.hears("one")
    assert lines(noted) == ["one"]


async def test_a_changed_hook_cannot_turn_another_off_by_taking_its_name(home: Home, workspace: Path) -> None:
    write_hook(workspace / "hooks", "a", "def handle(event): pass\n", "message:received")
    write_hook(workspace / "hooks", "guard", BLOCK, "before_tool_call")
    async with opened(home) as pal:
        await enable_hook(pal.services, name="a")
        await enable_hook(pal.services, name="guard")
        about = workspace / "hooks" / "a" / "HOOK.md"
        about.write_text(about.read_text().replace("name: a", "name: guard"))
        pal.says(Calls(("ls", {})), Says("done"))
        await pal.hears("look")
        assert "the hook says no" in (await pal.results())[-1].text
        assert (await disable_hook(pal.services, name="guard")).folder.endswith("/hooks/guard")


async def test_folders_that_nobody_enabled_are_not_read_when_something_happens(
    home: Home, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        write_hook(workspace / "hooks", f"junk-{number}", "x = 1\n" * 10_000, "message")
    write_hook(home.root / "hooks", "own", "def handle(event): pass\n", "message")
    read: list[str] = []
    monkeypatch.setattr(folders, "read_content", lambda folder: read.append(folder) or read_content(folder))
    async with opened(home) as pal:
        await pal.hears("hello")
        assert {Path(folder).name for folder in read} == {"own"}


async def test_a_folder_with_too_many_files_is_no_hook(home: Home) -> None:
    folder = write_hook(home.root / "hooks", "crowd", "def handle(event): pass\n", "message")
    for number in range(200):
        (folder / f"{number}.txt").write_text("x")
    async with opened(home) as pal:
        assert "more than 100 entries" in (await infos(pal))["crowd"].reasons[0]


async def test_a_damaged_list_of_what_is_enabled_blocks_and_is_named(home: Home) -> None:
    (home.root / "hooks").mkdir()
    (home.root / "hooks" / "enabled.json").write_text("{")
    async with opened(home) as pal:
        pal.says(Calls(("ls", {})), Says("done"))
        assert (await pal.hears("look")).text == "done"
        assert "enabled.json cannot be read" in (await pal.results())[-1].text
