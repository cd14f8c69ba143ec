"""Long results: cut for the model, kept for the session, thrown away in time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.config.secrets import Redactor
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import Tool, ToolOutput, ToolRun, tool
from palinurus.testing.fakes import FakeClock
from palinurus.tools import registry
from palinurus.tools.built_in import file_tools
from palinurus.tools.registry import ResultStore, ToolRegistry, characters_for_window, split_pieces
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

MAIN = ToolRun(SessionKey.main(), "r", private=True, max_characters=4_000)
OTHER = msgspec.structs.replace(MAIN, key=SessionKey.parse("agent:main:direct:bob"))
SECRET = "correct-horse-battery-staple"
LONG = "".join(f"line {number}\n" for number in range(1, 3_001))


def saying(text: str, *, outside: bool = False) -> Tool:
    @tool("say", "Says it.")
    async def say(run: ToolRun) -> ToolOutput:
        return ToolOutput(text)

    return msgspec.structs.replace(say, outside=outside)


class Hands:
    def __init__(self, home: Path) -> None:
        (home / "workspace").mkdir()
        self.home = home
        self.clock = FakeClock()
        self.shelf = ResultStore(home / "results", Redactor([SECRET]).redact, self.clock)
        self.files = file_tools(WorkspaceFiles(Boundary(home / "workspace")), self.shelf)

    async def run(self, run: ToolRun, name: str, *more: Tool, **arguments: Any) -> ToolOutput:
        return await ToolRegistry((*self.files, *more), results=self.shelf).run(run, ToolCall("c", name, arguments))

    async def say(self, text: str, run: ToolRun = MAIN, *, outside: bool = False) -> str:
        return str((await self.run(run, "say", saying(text, outside=outside))).content)

    async def whole(self, run: ToolRun, name: str, offset: int = 1) -> str:
        """What one reads who goes on reading to the end."""
        lines: list[str] = []
        while True:
            page = str((await self.run(run, "read", path=name, offset=offset)).content).split("\n")
            lines += [line.partition("| ")[2] for line in page[1:] if not line.startswith("[continue")]
            if not page[-1].startswith("[continue with offset="):
                return "\n".join(lines)
            offset = int(re.sub(r"\D", "", page[-1]))

    def kept(self) -> list[Path]:
        return sorted((self.home / "results").rglob("*.txt"))


@pytest.fixture
def hands(tmp_path: Path) -> Hands:
    return Hands(tmp_path)


def name_in(text: str) -> str:
    found = re.search(r'path="(result:[0-9a-f]{16})", offset=(\d+)', text)
    assert found is not None, text
    return found[1]


@pytest.mark.parametrize(
    ("tokens", "characters"),
    [(None, 16_000), (8_000, 16_000), (99_999, 16_000), (100_000, 32_000), (200_000, 32_000), (249_999, 32_000),
     (250_000, 64_000), (1_000_000, 64_000)],
)  # fmt: skip
def test_a_larger_window_is_shown_longer_results(tokens: int | None, characters: int) -> None:
    assert characters_for_window(tokens) == characters


async def test_the_limit_is_that_of_the_run(hands: Hands) -> None:
    wide = msgspec.structs.replace(MAIN, max_characters=64_000)
    assert await hands.say(LONG, wide) == LONG
    assert hands.kept() == []
    assert len(await hands.say(LONG)) < 4_200


async def test_the_whole_of_a_cut_result_can_be_read_and_searched(hands: Hands) -> None:
    cut = await hands.say(LONG)
    assert f"\n[… {len(LONG) - 4_000:,} of {len(LONG):,} characters cut here; read them with path=" in cut
    name = name_in(cut)
    assert await hands.whole(MAIN, name) + "\n" == LONG
    found = await hands.run(MAIN, "grep", pattern="line 2999", path=name)
    assert found.content == f"{name}#L2999: line 2999"


async def test_the_offset_that_is_named_is_where_the_cut_began(hands: Hands) -> None:
    cut = await hands.say(LONG)
    head = cut.partition("\n[…")[0]
    offset = int(cut.partition("offset=")[2].split()[0])
    page = str((await hands.run(MAIN, "read", path=name_in(cut), offset=offset, limit=1)).content)
    assert page.split("\n")[1].startswith(f"{offset}| " + head.rpartition("\n")[2])


async def test_one_endless_line_can_be_read_to_its_end(hands: Hands) -> None:
    text = "".join(f"{number:06}," for number in range(3_000))
    name = name_in(await hands.say(text))
    assert (await hands.whole(MAIN, name)).replace("\n", "") == text


async def test_the_file_is_for_this_user_alone_and_holds_no_secret(hands: Hands) -> None:
    text = "x" * 2_990 + SECRET + "y" * 5_000  # the cut goes right through it
    cut = await hands.say(text)
    (file,) = hands.kept()
    assert file.stat().st_mode & 0o777 == 0o600
    for part in (cut, file.read_text(), await hands.whole(MAIN, name_in(cut))):
        assert "correct" not in part
        assert "staple" not in part


async def test_the_same_text_has_the_same_name(hands: Hands) -> None:
    assert await hands.say(LONG) == await hands.say(LONG)
    assert len(hands.kept()) == 1


async def test_another_session_cannot_read_it_and_is_not_told_that_it_exists(hands: Hands) -> None:
    name = name_in(await hands.say(LONG))
    unknown = f"result:{'0' * 16}"
    for tool_name, more in (("read", {}), ("grep", {"pattern": "line"})):
        theirs = await hands.run(OTHER, tool_name, path=name, **more)
        nobodys = await hands.run(OTHER, tool_name, path=unknown, **more)
        assert theirs.is_error
        assert str(theirs.content).replace(name, unknown) == nobodys.content


async def test_what_a_private_run_got_is_closed_to_one_that_is_not(hands: Hands) -> None:
    name = name_in(await hands.say(LONG))
    shared = msgspec.structs.replace(MAIN, private=False)
    assert (await hands.run(shared, "read", path=name)).is_error


async def test_words_from_outside_stay_words_from_outside(hands: Hands) -> None:
    name = name_in(await hands.say(LONG, outside=True))
    assert (await hands.run(MAIN, "read", path=name)).origin == Origin.OUTSIDE
    assert (await hands.run(MAIN, "grep", path=name, pattern="line")).origin == Origin.OUTSIDE
    ours = name_in(await hands.say(LONG))
    assert ours != name
    assert (await hands.run(MAIN, "read", path=ours)).origin == Origin.OWNER


@pytest.mark.parametrize(
    "path", ["result:", "result:../x", "result:" + "0" * 15, "result:" + "0" * 17, "result:/etc/passwd", "result:\0",
             "result:ABCDEFABCDEFABCD", "result:" + "0" * 16 + "\n"],
)  # fmt: skip
async def test_an_id_never_becomes_a_path(hands: Hands, path: str) -> None:
    await hands.say(LONG)
    (hands.home / "results" / "x.txt").write_text('{"tool":"x","private":false,"origin":"owner"}\nsecret')
    output = await hands.run(MAIN, "read", path=path)
    assert output.is_error
    assert "in this session" in str(output.content)


async def test_results_are_thrown_away_after_a_week_also_those_of_other_sessions(hands: Hands) -> None:
    await hands.say(LONG)
    theirs = name_in(await hands.say(LONG + "theirs", OTHER))
    hands.clock.advance(days=6)
    await hands.say(LONG + "new")
    assert len(hands.kept()) == 3
    hands.clock.advance(days=2)
    await hands.say(LONG + "newer")
    assert len(hands.kept()) == 2
    assert len(list((hands.home / "results").iterdir())) == 1
    assert "seven days" in str((await hands.run(OTHER, "read", path=theirs)).content)


async def test_a_session_keeps_the_newest_within_number_and_size(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_FILES", 3)
    names = []
    for number in range(5):
        hands.clock.advance(seconds=1)
        names.append(name_in(await hands.say(f"{number} {LONG}")))
    assert [(await hands.run(MAIN, "read", path=name)).is_error for name in names] == [True, True, False, False, False]
    monkeypatch.setattr(registry, "MAX_BYTES", 2 * len(LONG))
    hands.clock.advance(seconds=1)
    await hands.say(LONG)
    assert len(hands.kept()) == 1


async def test_of_an_enormous_result_the_beginning_is_kept(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_CHARACTERS_KEPT", 10_000)
    cut = await hands.say(LONG)
    assert ", up to a point …]" in cut
    assert await hands.whole(MAIN, name_in(cut)) == LONG[:10_000]


async def test_trouble_with_the_disk_costs_the_rest_and_not_the_result(hands: Hands) -> None:
    (hands.home / "results").write_text("in the way")
    cut = await hands.say(LONG)
    assert "characters cut here; they could not be stored: request a smaller part to read them …]" in cut
    assert cut.startswith("line 1\n")


async def test_a_damaged_file_is_as_good_as_none(hands: Hands) -> None:
    name = name_in(await hands.say(LONG))
    hands.kept()[0].write_bytes(b"\xff\xfe nonsense")
    assert (await hands.run(MAIN, "read", path=name)).is_error


async def test_a_forgotten_session_leaves_nothing(hands: Hands) -> None:
    await hands.say(LONG)
    await hands.say(LONG, OTHER)
    hands.shelf.forget(MAIN.key)
    assert len(hands.kept()) == 1
    hands.shelf.forget(OTHER.key)
    assert list((hands.home / "results").iterdir()) == []


async def test_without_a_shelf_nothing_is_named(hands: Hands) -> None:
    output = await ToolRegistry((saying(LONG),)).run(MAIN, ToolCall("c", "say", {}))
    assert "cut here; request a smaller part to read them …]" in str(output.content)
    bare = ToolRegistry(file_tools(WorkspaceFiles(Boundary(hands.home / "workspace"))))
    assert (await bare.run(MAIN, ToolCall("c", "read", {"path": f"result:{'0' * 16}"}))).is_error


@settings(deadline=None)
@given(st.text(st.sampled_from("a\n\r é\U0001f600"), max_size=200), st.integers(1, 7))
def test_the_pieces_of_a_beginning_are_the_beginning_of_the_pieces(text: str, width: int) -> None:
    before, registry.LINE = registry.LINE, width
    try:
        whole, part = split_pieces(text), split_pieces(text[: len(text) // 2])
        assert part[:-1] == whole[: len(part) - 1]
        assert "".join(whole) == text.replace("\n", "")
        assert all(len(piece) <= width for piece in whole)
    finally:
        registry.LINE = before
