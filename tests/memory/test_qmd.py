"""qmd as the backend: what it is told, what of its answers counts, and who answers when it fails (by a stand-in)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from test_backends import STAND_IN, TestBuiltin, program

from palinurus.config.home import Home
from palinurus.config.load import Config
from palinurus.domain.errors import BackendError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, Origin
from palinurus.domain.tool import ToolRun
from palinurus.extensions.forget.operations import Forget, forget
from palinurus.extensions.qmd.backend import QmdBackend, merged, open_qmd
from palinurus.extensions.qmd.command import QmdRow, environment
from palinurus.memory.backend import BUILTIN, FallbackMemory
from palinurus.memory.get import LineRange, answer_get, answer_search, get_lines
from palinurus.memory.memory import Memory
from palinurus.memory.question import Question, SearchMemory
from palinurus.memory.settings import Collection
from palinurus.operations.memory import search_memory, show_memory_status
from palinurus.runtime.runtime import Runtime
from palinurus.testing.fakes import FakeClock, SeededIds
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigins
from support.backend_contract import LIMITS, SECRET, Kept

DAY = 86_400


class Place:
    """A kept home whose backends are opened with options of qmd and a mood of the stand-in."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.opened: list[QmdBackend | FallbackMemory] = []

    def qmd(self, mood: str = "", **options: Any) -> QmdBackend:
        config = Config({"memory": {"qmd": {"command": program(mood), **options}}})
        backend = open_qmd(replace(self.kept.place, config=config))
        self.opened.append(backend)
        return backend

    def memory(self, mood: str = "", **options: Any) -> FallbackMemory:
        """With the builtin engine behind it."""
        builtin = TestBuiltin().open(replace(self.kept.place, folder=self.kept.root.parent / "builtin"))
        assert isinstance(builtin, Memory)
        memory = FallbackMemory("qmd", builtin, lambda _: self.qmd(mood, **options), self.kept.clock)
        self.opened.append(memory)
        return memory

    def calls(self, *names: str) -> list[dict[str, Any]]:
        lines = (self.kept.root.parent / "calls.jsonl").read_text().splitlines()
        return [call for call in map(json.loads, lines) if not names or call["at"] in names]


@pytest.fixture
async def place(tmp_path: Path, clock: FakeClock, new_id: SeededIds) -> AsyncIterator[Place]:
    made = Place(Kept(tmp_path, clock, new_id, {}))
    async with asyncio.timeout(60):
        yield made
        for each in made.opened:
            await each.close()


async def paths(backend: QmdBackend | FallbackMemory, query: str, **more: Any) -> list[str]:
    return [each.path for each in (await backend.search(Question(query, LIMITS, **more))).results]


async def test_it_is_run_in_folders_of_its_own_without_keys_and_colours(place: Place) -> None:
    env = {**os.environ, "SECRET_KEY": "x", "QMD_CONFIG_DIR": "/etc", "QMD_FORCE_CPU": "1"}
    backend = open_qmd(replace(place.kept.place, env=env, config=Config({"memory": {"qmd": {"command": program()}}})))
    place.opened.append(backend)
    await paths(backend, "rudder")
    folder = place.kept.place.folder
    assert {(call["cwd"], *call["env"].values()) for call in place.calls()} == {(str(folder), "1", "", "")}
    assert environment(folder, env)["QMD_FORCE_CPU"] == "1"
    assert environment(folder, env)["XDG_CONFIG_HOME"] == str(folder / "xdg-config")
    assert environment(folder, env)["XDG_CACHE_HOME"] == str(folder / "xdg-cache")


async def test_collections_are_registered_once_with_sanitised_names(place: Place) -> None:
    kept, root = place.kept, place.kept.root
    boats = Collection("my_boats", root.parent / "handbook", "**/*.md")
    kept.place = replace(kept.place, settings=replace(kept.place.settings, collections=(boats,)))
    await kept.say("hello")
    for name in ("memory.md", "USER.md"):
        kept.write(f"workspace/{name}", "- text\n")
    for _ in range(2):
        await paths(place.qmd(), "rudder")
    added = {tuple(call["rest"][1:]) for call in place.calls("collection") if call["rest"][0] == "add"}
    assert len([call for call in place.calls("collection") if call["rest"][0] == "add"]) == len(added)
    assert {(path, "--name", name, "--mask", mask) for path, name, mask in [
        (str(root), "memory-root-main", "MEMORY.md"),
        (str(root), "memory-alt-main", "memory.md"),
        (str(root), "memory-user-main", "USER.md"),
        (str(root / "memory"), "memory-dir-main", "**/*.md"),
        (str(kept.place.folder / "sessions"), "sessions-main", "**/*.md"),
        (str(root.parent / "handbook"), "my-boats", "**/*.md"),
    ]} == added  # fmt: skip


async def test_what_lies_outside_the_workspace_has_a_virtual_path_that_can_be_read(place: Place) -> None:
    memory, boundary = place.memory(), Boundary(place.kept.root)
    assert await paths(memory, "winch") == ["qmd/handbook/my tools (1).md"]
    read = await get_lines(memory, boundary, LineRange("qmd/handbook/my tools (1).md#L3"))
    assert (read.path, read.text) == ("qmd/handbook/my tools (1).md", "the anchor winch needs grease")
    same = await get_lines(memory, boundary, LineRange("qmd/memory-dir-main/2026-11-14.md", 3))
    assert same.text.startswith("- the rudder was mended")
    for hostile in ("qmd/handbook/../../secret.md", "qmd/handbook//etc/passwd", "qmd/nothing/a.md", "qmd/a.md"):
        with pytest.raises(Exception, match=r"not in memory|leads out|not markdown"):
            await get_lines(memory, boundary, LineRange(hostile))


async def test_text_from_outside_stays_text_from_outside_by_whatever_path(place: Place) -> None:
    place.kept.write("handbook/web.md", f"the squid is blue ({OUTSIDE_MARK}\n")
    session = SessionKey.parse("agent:main:main")
    run, workspace = ToolRun(session, "r", True), (Boundary(place.kept.root), FileOrigins())
    memory = place.memory()
    found = await answer_search(memory, run, workspace, "squid")
    assert (found.origin, found.sources) == (Origin.OUTSIDE, ("written:handbook/web.md",))
    read = await answer_get(memory, run, workspace, LineRange("qmd/handbook/web.md"))
    assert read.origin == Origin.OUTSIDE


async def test_sessions_are_written_with_roles_without_secrets_and_for_thirty_days(place: Place) -> None:
    kept, backend = place.kept, place.qmd()
    old = await kept.say("an old limerick", key="agent:main:named")
    kept.clock.advance(seconds=31 * DAY)
    new = await kept.say(f"the limerick costs {SECRET}", "a fine limerick")
    await kept.say("a limerick of the group", key="agent:main:telegram:group:1")
    assert await paths(backend, "limerick") == [f"qmd/sessions-main/{new}.md"]
    [file] = (kept.place.folder / "sessions").iterdir()
    assert file.name == f"{new}.md" != f"{old}.md"
    assert file.read_text().splitlines()[1:] == ["User: the limerick costs [redacted]", "Assistant: a fine limerick"]
    kept.clock.advance(seconds=31 * DAY)
    assert await paths(backend, "limerick") == []
    assert list((kept.place.folder / "sessions").iterdir()) == []


async def test_in_the_background_a_session_is_written_again_after_fifty_messages(place: Place) -> None:
    kept, backend = place.kept, place.qmd()
    session = await kept.say("the first")
    written = kept.place.folder / "sessions" / f"{session}.md"
    await backend._ask_for_update(gentle=True)
    await kept.say(*["few"] * 49)
    await backend._ask_for_update(gentle=True)
    assert "few" not in written.read_text()
    await kept.say("the fiftieth")
    await backend._ask_for_update(gentle=True)
    assert "the fiftieth" in written.read_text()


async def test_it_updates_and_embeds_at_boot_and_again_at_its_intervals(place: Place) -> None:
    kept = place.kept
    settings = replace(kept.place.settings, sync=replace(kept.place.settings.sync, sweep_minutes=0.001))
    kept.place = replace(kept.place, settings=settings)
    backend = place.qmd(update={"embedInterval": "100ms"})
    backend.start()
    while len(place.calls("embed") if (kept.root.parent / "calls.jsonl").exists() else ()) < 2:
        await asyncio.sleep(0.02)
    assert [call["at"] for call in place.calls("update", "embed")][:2] == ["update", "embed"]
    kept.write("workspace/memory/new.md", "- a gull\n")
    while len(place.calls("update")) < 2:
        await asyncio.sleep(0.02)


async def test_what_has_not_changed_is_not_indexed_again_by_another_process_either(place: Place) -> None:
    for _ in range(3):
        assert await paths(place.qmd(), "rudder") == ["memory/2026-11-14.md"]
    assert len(place.calls("update")) == 1


async def test_a_question_is_asked_by_what_it_is_about_when_its_words_find_nothing(place: Place) -> None:
    assert await paths(place.qmd(), "when was the rudder mended?") == ["memory/2026-11-14.md"]
    assert [call["rest"][-1] for call in place.calls("search")] == ["when was the rudder mended?", "rudder mended?"]


@pytest.mark.parametrize("mode", ["vsearch", "query"])
async def test_the_mode_is_the_command_and_a_typed_line_stays_a_question(place: Place, mode: str) -> None:
    backend = place.qmd(searchMode=mode, rerank=False)
    answer = await backend.search(Question("lex: rudder of gold", LIMITS))
    assert ([each.path for each in answer.results], answer.mode) == (["memory/2026-11-14.md"], "hybrid")
    [call] = place.calls(mode)
    assert call["rest"][-1] == ("expand: " if mode == "query" else "") + "lex: rudder of gold"
    assert ("--no-rerank" in call["rest"]) == (mode == "query")
    assert not place.calls("search")


async def test_hybrid_joins_words_and_vectors_by_the_documents_weights(place: Place) -> None:
    rows = {file: QmdRow("#1", score, file, "@@ -1,1 @@\nx") for file, score in [("a", 0.5), ("b", 0.9)]}
    joined = merged({"a": rows["a"]}, {"a": replace(rows["a"], score=1.0), "b": rows["b"]})
    assert {file: round(row.score, 3) for file, row in joined.items()} == {"a": 0.85, "b": 0.63}
    answer = await place.qmd(searchMode="hybrid").search(Question("rudder", LIMITS))
    assert (answer.mode, len(place.calls("search")), len(place.calls("vsearch"))) == ("hybrid", 1, 1)


async def test_without_models_hybrid_searches_by_words_and_says_so(place: Place) -> None:
    answer = await place.qmd("no-models", searchMode="hybrid").search(Question("rudder", LIMITS))
    assert (answer.mode, answer.freshness.vectors) == ("keyword", "down")
    assert "searched by words alone: `qmd vsearch` ended with exit code 1: NoBinaryFoundError" in answer.freshness.why
    assert answer.results


async def test_results_that_memory_does_not_have_are_left_out(place: Place) -> None:
    place.kept.write("secret.md", "a secret\n")
    assert await paths(place.qmd("elsewhere"), "rudder") == []


@pytest.mark.parametrize(
    ("mood", "why"),
    [
        ("crash", "`qmd search` ended with signal 9"),
        ("garbage", "qmd answered with something else than its JSON"),
        ("flood", "`qmd search` wrote more than 8 MB"),
        ("no-lines", "qmd did not say which lines it found"),
        ("old", "qmd 2.1.0 is too old: 2.6.3 or newer is needed"),
        ("hang", "did not answer within"),
        ("hang-update", "qmd has not indexed anything yet"),
        ("gone", "the program"),
    ],
)
async def test_where_it_fails_the_builtin_engine_answers_and_nothing_stays_behind(
    place: Place, mood: str, why: str
) -> None:
    seconds = 4.0 if mood.startswith("hang") else 30.0
    if mood == "hang":
        await place.qmd().sync()
    memory = place.memory(mood)
    if mood == "gone":
        memory = place.memory(command="/nowhere/qmd")
    answer = await memory.search(Question("rudder", replace(LIMITS, seconds=seconds)))
    assert (answer.results[0].path, answer.backend) == ("memory/2026-11-14.md", BUILTIN)
    assert why in answer.freshness.why
    status = await memory.status()
    assert (status.backend, status.backend_wanted) == (BUILTIN, "qmd")
    assert why in status.backend_reason
    await memory.close()
    if mood != "gone":
        assert not [call for call in place.calls() if Path("/proc", str(call["pid"])).exists()]


async def test_an_index_that_was_deleted_meanwhile_is_made_anew(place: Place) -> None:
    backend = place.qmd()
    assert await paths(backend, "rudder")
    shutil.rmtree(place.kept.place.folder)
    assert await paths(backend, "rudder")


async def test_what_an_index_held_that_was_dropped_while_it_was_embedded_is_not_noted_down_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = place.qmd(searchMode="vsearch")
    await backend.sync()
    run = backend._command.run

    async def run_and_drop(*arguments: str, seconds: float) -> str:
        said = await run(*arguments, seconds=seconds)
        if arguments[0] == "embed":
            await backend._drop()  # as `forget` does, which does not wait for vectors
        return said

    monkeypatch.setattr(backend._command, "run", run_and_drop)
    await backend._embed()
    assert not (place.kept.place.folder / "state.json").exists()


async def test_a_home_that_is_only_read_writes_nothing(place: Place) -> None:
    place.kept.place = replace(place.kept.place, readonly=True)
    with pytest.raises(BackendError, match="qmd has not indexed anything yet"):
        await paths(place.qmd(), "rudder")
    assert not place.calls("update", "collection")


async def test_a_home_says_which_backend_serves(home: Home, workspace: Path) -> None:
    def config(command: str) -> Mapping[str, Any]:
        qmd = {"command": command, "sessions": {"enabled": True}, "limits": {"timeoutMs": 30_000}}
        search = {"provider": "none", "sync": {"watch": False}}
        return {
            "agents": {"defaults": {"workspace": str(workspace)}},
            "memory": {"backend": "qmd", "qmd": qmd, "search": search},
        }

    for command, served in [(program(), "qmd"), (str(STAND_IN.parent / "nothing"), BUILTIN)]:
        home.config_path.write_text(json.dumps(config(command)))
        runtime = Runtime(home, dict(os.environ))
        answer = await search_memory.function(runtime.services, SearchMemory("Aster"))
        status = await show_memory_status.function(runtime.services)
        assert (answer.backend, answer.results[0].path) == (served, "MEMORY.md")
        assert (status.backend, status.backend_wanted, bool(status.backend_reason)) == (
            served,
            "qmd",
            served == BUILTIN,
        )
        await runtime.close()
    assert (home.root / "derived" / "qmd" / "main" / "xdg-cache" / "qmd" / "index.sqlite").exists()


@pytest.mark.parametrize("backend", ["qmd", BUILTIN])
async def test_forgotten_words_leave_its_index_also_when_it_is_no_longer_used(
    home: Home, workspace: Path, backend: str
) -> None:
    def write(name: str) -> None:
        qmd = {"command": program("quiet"), "limits": {"timeoutMs": 30_000}}
        memory = {"backend": name, "qmd": qmd, "search": {"provider": "none", "sync": {"watch": False}}}
        config = {"agents": {"defaults": {"workspace": str(workspace)}}, "memory": memory}
        home.config_path.write_text(json.dumps(config))

    write("qmd")
    (workspace / "memory").mkdir()
    (workspace / "memory" / "a.md").write_text("- the password is Zanzibar-7741\n- the boat is green\n")
    runtime = Runtime(home, dict(os.environ))
    assert (await search_memory.function(runtime.services, SearchMemory("Zanzibar"))).backend == "qmd"
    write(backend)
    report = await forget(runtime.services, Forget(query="Zanzibar-7741", apply=True))
    assert report.remains == ()
    assert [file for file in home.root.rglob("*") if file.is_file() and b"Zanzibar" in file.read_bytes()] == []
    await runtime.close()
