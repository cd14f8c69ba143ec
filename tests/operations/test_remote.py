"""The holder's socket: who may speak, what happens to those who speak nonsense, and when the holder goes away."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from palinurus.config.home import Home
from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, HolderLost, HolderRefused, UnknownOperation
from palinurus.domain.events import AssistantDelta
from palinurus.domain.keys import SessionKey
from palinurus.operations import remote
from palinurus.operations.remote import PROTOCOL, Hello, HomeIdentity, RemoteCaller, Server
from palinurus.operations.runs import FollowRun, WaitForRun, follow_run, submit_message, wait_for_run
from palinurus.operations.sessions import list_sessions
from palinurus.providers.provider import ModelRequest, ReplyEvent, TextDelta
from palinurus.runtime.table import TABLE
from palinurus.testing.fakes import ScriptedProvider
from palinurus.testing.harness import Harness

OURS = Hello(HomeIdentity("/home/palinurus.json", ""), 4711, "pal chat")


class Waiting(ScriptedProvider):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        self.requests.append(request)
        yield TextDelta("well")
        await asyncio.Event().wait()


@pytest.fixture
async def server(pal: Harness, home: Home) -> AsyncIterator[Server]:
    listening = Server(pal.services(home), TABLE, OURS)
    yield listening
    await asyncio.wait_for(listening.close(), 60)


@pytest.fixture
async def path(server: Server, tmp_path: Path) -> Path:
    await server.start(tmp_path / "pal.sock")
    return tmp_path / "pal.sock"


async def test_the_socket_is_its_owner_s_alone(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_socket_that_a_dead_process_left_behind_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "pal.sock").write_text("left behind")
    await server.start(tmp_path / "pal.sock")
    await (await RemoteCaller.connect(tmp_path / "pal.sock", OURS)).close()


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        (
            Hello(HomeIdentity("/other.json", ""), 1, "pal"),
            r"it uses the config .*palinurus\.json, you asked for /other",
        ),
        (
            Hello(HomeIdentity(OURS.identity.config, "/w"), 1, "pal"),
            "it uses the workspace of its config, you asked for /w",
        ),
        (Hello(OURS.identity, 1, "pal", protocol=PROTOCOL + 1), "another release of pal"),
    ],
    ids=["config", "workspace", "protocol"],
)
async def test_a_client_that_means_something_else_is_refused_and_told_why(path: Path, theirs: Hello, why: str) -> None:
    with pytest.raises(HolderRefused, match=why) as refused:
        await RemoteCaller.connect(path, theirs)
    assert "pid 4711 (pal chat) holds this home" in refused.value.message
    assert "PALINURUS_HOME" in refused.value.hint


async def test_a_client_learns_who_holds_the_home(path: Path) -> None:
    caller = await RemoteCaller.connect(path, OURS)
    assert (caller.holder.pid, caller.holder.command) == (4711, "pal chat")
    await caller.close()


async def test_a_home_however_deep_can_be_reached(server: Server, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    deep.mkdir(parents=True)
    assert len(str(deep)) > 108
    await server.start(deep / "pal.sock")
    caller = await RemoteCaller.connect(deep / "pal.sock", OURS)
    assert (await asyncio.wait_for(caller.call(list_sessions, list_sessions.params()), 60)).sessions == ()
    await caller.close()


async def test_nobody_listening_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        await RemoteCaller.connect(tmp_path / "nobody.sock", OURS)


async def test_a_holder_that_says_nothing_is_lost_in_time(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        left.set()

    silent = await asyncio.start_unix_server(listen, str(tmp_path / "s.sock"))
    with pytest.raises(HolderLost, match="does not answer"):
        await RemoteCaller.connect(tmp_path / "s.sock", OURS, timeout=0.02)
    await asyncio.wait_for(left.wait(), 60)
    silent.close()


async def test_an_operation_of_another_release_is_unknown(path: Path) -> None:
    caller = await RemoteCaller.connect(path, OURS)
    future = replace(list_sessions, name="sessions.dream")
    with pytest.raises(UnknownOperation, match=r"sessions\.dream"):
        await asyncio.wait_for(caller.call(future, list_sessions.params()), 60)
    await caller.close()


async def test_parameters_of_the_wrong_shape_are_a_bad_request(path: Path) -> None:
    caller = await RemoteCaller.connect(path, OURS)
    crooked = replace(wait_for_run, name=list_sessions.name)
    wrong = replace(list_sessions, name="agent.wait")
    with pytest.raises(BadRequest, match="there is no parameter 'run_id'"):
        await asyncio.wait_for(caller.call(crooked, WaitForRun("x")), 60)
    with pytest.raises(BadRequest, match="run_id"):
        await asyncio.wait_for(caller.call(wrong, list_sessions.params()), 60)
    await caller.close()


async def test_a_holder_that_goes_away_in_mid_call_is_lost_for_everybody_who_waits(
    server: Server, path: Path, pal: Harness
) -> None:
    pal.model = Waiting()
    caller = await RemoteCaller.connect(path, OURS)
    accepted = await caller.call(submit_message, Inbound("hi", "k"))
    followed = caller.follow(follow_run, FollowRun(accepted.run_id))
    assert await anext(followed)
    waiting = asyncio.create_task(caller.call(wait_for_run, WaitForRun(accepted.run_id)))
    await asyncio.sleep(0)
    await asyncio.wait_for(server.close(), 60)
    with pytest.raises(HolderLost):
        await asyncio.wait_for(waiting, 60)
    with pytest.raises(HolderLost):
        await asyncio.wait_for(_to_the_end(followed), 60)
    with pytest.raises(HolderLost):
        await asyncio.wait_for(caller.call(list_sessions, list_sessions.params()), 60)
    await caller.close()
    assert not path.exists()


async def _to_the_end(feed: AsyncIterator[object]) -> None:
    async for _ in feed:
        pass


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"\xff\xfe\n", b"[" * 1000 + b"\n", b"null\n"])
async def test_a_client_that_speaks_another_language_is_shown_out_and_the_next_one_served(
    path: Path, words: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(words)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    await (await RemoteCaller.connect(path, OURS)).close()
    assert caplog.records == []


async def test_nonsense_after_a_good_hello_ends_the_connection(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    hello = {"identity": {"config": OURS.identity.config, "workspace": ""}, "pid": 1, "command": "pal"}
    writer.write(json.dumps(hello).encode() + b"\nnonsense\n")
    assert b'"refused":""' in await asyncio.wait_for(reader.readline(), 60)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    assert caplog.records == []


async def test_a_client_that_says_nothing_is_shown_out_quietly(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(remote, "HELLO_SECONDS", 0.02)
    reader, writer = await asyncio.open_unix_connection(str(path))
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    await asyncio.sleep(0)
    assert caplog.records == []


async def test_a_client_that_leaves_takes_its_waits_along_and_not_its_runs(
    path: Path, pal: Harness, server: Server
) -> None:
    pal.model = Waiting()
    caller = await RemoteCaller.connect(path, OURS)
    accepted = await caller.call(submit_message, Inbound("hi", "k"))
    waiting = asyncio.create_task(caller.call(wait_for_run, WaitForRun(accepted.run_id)))
    await asyncio.sleep(0)
    await caller.close()
    await asyncio.wait([waiting], timeout=60)
    run = await pal.dispatcher.find(accepted.run_id)
    assert run.result is None
    run.stop.request()
    assert (await run.wait(60)).status == "aborted"


async def test_a_client_that_goes_away_in_the_middle_of_a_feed_is_no_news(
    pal: Harness, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = pal.dispatcher.runs.add(Run("a-run", SessionKey.main(), 0))
    caller = await RemoteCaller.connect(path, OURS)
    followed = caller.follow(follow_run, FollowRun("a-run"))
    await asyncio.wait_for(anext(followed), 60)
    await caller.close()
    for _ in range(200):  # more than the socket's buffer holds
        run.emit(AssistantDelta("x" * 10_000))
        await asyncio.sleep(0)
    await asyncio.wait_for(followed.aclose(), 60)  # type: ignore[attr-defined]
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
