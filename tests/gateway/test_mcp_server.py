"""`pal mcp serve`, asked by the client of the official package: in this process, and by a real child of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from palinurus.config.home import Home
from palinurus.domain.errors import Failure, HolderLost, QueueFull
from palinurus.domain.events import Plan
from palinurus.domain.messages import Origin, UserMessage
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.extensions.mcp import send
from palinurus.extensions.mcp.send import CallSlots, McpCall, ServeOptions
from palinurus.extensions.mcp.serve import McpCalls, load, make_server, schema_of, served_tools
from palinurus.memory.settings import MemorySettings
from palinurus.operations.operation import operation
from palinurus.operations.runs import list_runs, submit_message
from palinurus.operations.services import Services
from palinurus.operations.table import LocalCaller, mcp_tool
from palinurus.providers.provider import ModelRequest
from palinurus.runtime.home_access import HomeAccess
from palinurus.runtime.memory import AgentMemories, Memories
from palinurus.runtime.table import TABLE
from palinurus.testing.fakes import ScriptedProvider, call, calls, fails
from palinurus.testing.harness import Harness

READING = {
    *("conversations_list", "messages_read", "messages_search", "run_wait", "status"),
    *("memory_search", "memory_get"),
}
APPROVING = {"approvals_list", "approvals_answer"}
MAIN = "agent:main:main"


class Other:
    """Another agent with its client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def names(self) -> set[str]:
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def call(self, name: str, **arguments: Any) -> Any:
        """What the tool shows. Its text and its structure must say the same."""
        result = await asyncio.wait_for(self.client.call_tool(name, arguments), 60)
        assert not result.is_error, result.content[0].text
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    async def fails(self, name: str, **arguments: Any) -> str:
        """The one line that it is told."""
        result = await asyncio.wait_for(self.client.call_tool(name, arguments), 60)
        assert result.is_error
        assert len(result.content) == 1
        assert len(result.content[0].text.splitlines()) == 1
        return str(result.content[0].text)


class Counted(Struct, frozen=True):
    numbers: tuple[int, ...]


async def nobody_told(count: int, line: str) -> None: ...


Connect = Callable[..., contextlib.AbstractAsyncContextManager[Other]]


@pytest.fixture(scope="module", autouse=True)
def _client_library() -> None:
    """Imported before a loop runs: it takes long, and that is not ours."""
    import mcp  # noqa: F401


@pytest.fixture
def connect(home: Home) -> Connect:
    """`async with connect(pal, read_only=True) as other:` in this process."""

    @contextlib.asynccontextmanager
    async def connect(pal: Harness, caller: Any = None, **options: bool) -> AsyncIterator[Other]:
        await load()
        from mcp import Client

        server = make_server(caller or LocalCaller(pal.services(home)), ServeOptions(**options), pal.new_id)
        async with Client(server) as client:
            yield Other(client)

    return connect


async def test_others_may_look_and_speak_unless_the_owner_says_otherwise(pal: Harness, connect: Connect) -> None:
    async with connect(pal) as other:
        assert await other.names() == READING | {"message_send", "run_stop"}
    async with connect(pal, read_only=True) as other:
        assert await other.names() == READING
        assert "there is no tool 'message_send'" in await other.fails("message_send", message="hi")
    async with connect(pal, approvals=True) as other:
        assert await other.names() == READING | APPROVING | {"message_send", "run_stop"}
    from mcp import MCPError

    async with connect(pal, guest=True) as other:  # what the owner notes and says is no business of guests
        assert await other.names() == {"run_wait", "status", "message_send", "run_stop"}
        assert "there is no tool" in await other.fails("messages_search", query="boat")
        assert (await other.client.list_resources()).resources == []
        assert (await other.client.list_resource_templates()).resource_templates == []
        assert (await other.client.list_prompts()).prompts == []
        with pytest.raises(MCPError, match="guests read no resources"):
            await other.client.read_resource("palinurus://sessions/agent%3Amain%3Amain")
        with pytest.raises(MCPError, match="guests get no prompts"):
            await other.client.get_prompt("weather")


async def test_others_may_search_and_read_what_was_noted(
    pal: Harness, home: Home, workspace: Path, connect: Connect, tmp_path: Path
) -> None:
    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-11-15.md").write_text("- The rudder is green.\n- Ann has the sail.\n")
    settings = AgentMemories(workspace, MemorySettings(embedder="none"))
    memories = Memories(tmp_path / "derived", lambda _: settings, pal.sessions, pal.clock)
    services = pal.services(home).replace(memory=memories.of)
    async with connect(pal, LocalCaller(services)) as other:
        told = await other.call("memory_search", query="which colour has the rudder?", maxResults=1)
        (best,) = told["results"]
        assert (best["path"], best["startLine"], best["snippet"]) == (
            "memory/2026-11-15.md",
            1,
            "- The rudder is green.",
        )
        assert "freshness" not in told
        lines = await other.call("memory_get", path="memory/2026-11-15.md", **{"from": 2})
        assert lines["text"] == "- Ann has the sail."
        assert "not in memory" in await other.fails("memory_get", path="SOUL.md")
        assert "out of memory" in await other.fails("memory_get", path="memory/../../x.md")
    await memories.close()


async def test_a_message_is_answered_and_can_be_listed_read_and_found(pal: Harness, connect: Connect) -> None:
    pal.model.says("The tide turns at six.")
    async with connect(pal) as other:
        told = await other.call("message_send", message="When does the tide turn?")
        assert (told["status"], told["reply"], told["sessionKey"]) == ("ok", "The tide turns at six.", MAIN)
        (listed,) = (await other.call("conversations_list"))["conversations"]
        assert (listed["sessionKey"], listed["agent"]) == (MAIN, "main")
        read = await other.call("messages_read", sessionKey=MAIN)
        assert [(each["role"], each["text"]) for each in read["messages"]] == [
            ("user", "When does the tide turn?"),
            ("assistant", "The tide turns at six."),
        ]
        (match, *_) = (await other.call("messages_search", query="tide six"))["matches"]
        assert match["sessionKey"] == MAIN
        assert match["entryId"] in {each["id"] for each in read["messages"]}
        assert (await other.call("status"))["agents"] == ["main"]


async def test_the_same_key_says_it_once_and_other_words_are_never_swallowed(pal: Harness, connect: Connect) -> None:
    pal.model.says("One.", "Two.", "Three.")
    async with connect(pal) as other:
        first = await other.call("message_send", message="count", idempotencyKey="k")
        again = await other.call("message_send", message="count", idempotencyKey="k")
        assert again == first
        different = await other.call("message_send", message="count on", idempotencyKey="k")
        elsewhere = await other.call("message_send", message="count", idempotencyKey="k", sessionKey="holiday")
        assert [first["reply"], different["reply"], elsewhere["reply"]] == ["One.", "Two.", "Three."]
        assert len({first["runId"], different["runId"], elsewhere["runId"]}) == 3


async def test_words_of_a_program_are_no_commands(pal: Harness, connect: Connect) -> None:
    pal.model.says("Started over? No.")
    async with connect(pal) as other:
        assert (await other.call("message_send", message="/new"))["reply"] == "Started over? No."


@pytest.mark.parametrize(("guest", "origin"), [(False, Origin.OWNER), (True, Origin.OUTSIDE)])
async def test_whose_words_they_are_is_for_the_owner_to_say(
    pal: Harness, connect: Connect, guest: bool, origin: Origin
) -> None:
    pal.model.says("Yes.")
    async with connect(pal, guest=guest) as other:
        key = (await other.call("message_send", message="do as I say"))["sessionKey"]
        heard = [message for message in await pal.messages(key) if isinstance(message, UserMessage)]
        assert [message.origin for message in heard] == [origin]
    async with connect(pal) as owner:
        (read, _) = (await owner.call("messages_read", sessionKey=key))["messages"]
        assert read.get("origin", "owner") == str(origin)


async def test_a_guest_reads_waits_for_and_stops_nothing_of_the_owner(pal: Harness, connect: Connect) -> None:
    pal.model.says("Noted.", "Hello, guest.", "Again.")
    async with connect(pal) as owner, connect(pal, guest=True) as guest:
        secret = await owner.call("message_send", message="the code of my safe is 4711")
        told = await guest.call("message_send", message="what did we say before?")
        assert told["sessionKey"] == "agent:main:mcp:direct:guest"
        assert "4711" not in str(pal.model.requests[-1])
        (again,) = {(await guest.call("message_send", message="hi", sessionKey=told["sessionKey"]))["sessionKey"]}
        assert again == told["sessionKey"]
        for name in (MAIN, "agent:main:telegram:direct:42", "../x", "a b", "agent:main:mcp:direct:x:thread:1"):
            assert "sessions of their own" in await guest.fails("message_send", message="hi", sessionKey=name)
            assert "sessions of their own" in await guest.fails("run_stop", sessionKey=name)
        assert "of yours" in await guest.fails("run_wait", runId=secret["runId"])
        assert "of yours" in await guest.fails("run_stop", runId=secret["runId"])
        assert (await guest.call("run_wait", runId=told["runId"]))["reply"] == "Hello, guest."
        assert (await guest.call("run_stop", sessionKey="guest"))["stopped"] == 0
        assert "4711" not in json.dumps(await guest.call("status"))


class Slow(ScriptedProvider):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        await self.go.wait()
        async for event in super().stream(request):
            yield event


async def test_a_long_wait_ends_and_the_run_goes_on(workspace: Path, connect: Connect) -> None:
    model = Slow()
    model.says("Here at last.")
    async with Harness(workspace, model=model) as pal, connect(pal) as other:
        told = await other.call("message_send", message="hurry", waitSeconds=0)
        assert told["status"] == "running"
        assert (await other.call("run_wait", runId=told["runId"], waitSeconds=0))["status"] == "running"
        model.go.set()
        assert (await other.call("run_wait", runId=told["runId"]))["reply"] == "Here at last."


async def test_who_stops_waiting_does_not_stop_the_run(workspace: Path, connect: Connect) -> None:
    model = Slow()
    model.says("Said to nobody.")
    async with Harness(workspace, model=model) as pal, connect(pal) as other:
        waiting = asyncio.create_task(other.call("message_send", message="hurry", idempotencyKey="k"))
        async with asyncio.timeout(60):
            while not pal.dispatcher.busy:
                await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        model.go.set()
        again = await other.call("message_send", message="hurry", idempotencyKey="k")
        assert again["reply"] == "Said to nobody."
        assert len(model.requests) == 1


async def test_a_run_can_be_stopped(workspace: Path, connect: Connect) -> None:
    async with Harness(workspace, model=Slow()) as pal, connect(pal) as other:
        told = await other.call("message_send", message="for ever", waitSeconds=0)
        assert await other.call("run_stop", runId=told["runId"]) == {"stopped": 1}
        assert (await other.call("run_wait", runId=told["runId"]))["status"] == "aborted"
        assert "which run" in await other.fails("run_stop")


async def test_who_waits_is_told_what_goes_on(
    workspace: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "TELL_SECONDS", 0.01)
    model = Slow()
    model.says(calls(call("read", path="SOUL.md")), "Read it.")
    heard: list[tuple[float, str | None]] = []

    async def progress(count: float, total: float | None, message: str | None) -> None:
        heard.append((count, message))
        if len(heard) == 3:  # silence is broken however long the model takes
            model.go.set()

    async with Harness(workspace, model=model) as slow, connect(slow) as other:
        arguments = {"message": "read"}
        await asyncio.wait_for(other.client.call_tool("message_send", arguments, progress_callback=progress), 60)
    assert [count for count, _ in heard] == sorted({count for count, _ in heard})
    assert heard[0][1] in ("waits its turn", "thinks")


async def test_mistakes_are_told_in_one_line(pal: Harness, connect: Connect) -> None:
    async with connect(pal) as other:
        assert "there is no session 'agent:main:nowhere'" in await other.fails(
            "messages_read", sessionKey="agent:main:nowhere"
        )
        assert "unknown field `colour`" in await other.fails("status", colour="red")
        assert "missing required field `message`" in await other.fails("message_send")
        assert "$.limit" in await other.fails("conversations_list", limit=100_000)
        assert "there is no agent 'nobody'" in await other.fails("message_send", message="hi", agent="nobody")
        assert "there is no run" in await other.fails("run_wait", runId="nothing")
        assert "there is no tool 'exec'" in await other.fails("exec", command="id")


async def test_a_reply_that_failed_is_an_error_with_its_reason(pal: Harness, connect: Connect) -> None:
    pal.model.says(fails(Failure.BILLING, "the account is empty"))
    async with connect(pal) as other:
        line = await other.fails("message_send", message="hi")
        assert "failed: " in line
        assert "the account is empty" in line


async def test_our_own_mistake_costs_the_call_and_not_the_connection(
    pal: Harness, connect: Connect, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(LocalCaller):
        async def call(self, operation: Any, params: Any) -> Any:
            if operation.name == "status":
                raise ZeroDivisionError("secret details")
            return await super().call(operation, params)

    async with connect(pal, Broken(pal.services(home))) as other:
        assert "secret" not in await other.fails("status")
        assert await other.call("conversations_list") == {"conversations": []}
    assert "the MCP tool status failed" in caplog.text


async def test_when_the_holder_goes_away_the_wait_goes_on(pal: Harness, connect: Connect, home: Home) -> None:
    pal.model.says("Still here.")
    lost: list[str] = []

    class Fickle(LocalCaller):
        async def follow(self, feed: Any, params: Any) -> AsyncIterator[Any]:
            if not lost:
                lost.append(params.run_id)
                raise HolderLost("gone")
            async for item in super().follow(feed, params):
                yield item

    async with connect(pal, Fickle(pal.services(home))) as other:
        assert (await other.call("message_send", message="hi"))["reply"] == "Still here."
    assert lost


async def test_a_full_lane_is_told(pal: Harness, connect: Connect, home: Home) -> None:
    class Full(LocalCaller):
        async def call(self, operation: Any, params: Any) -> Any:
            if operation is submit_message:
                raise QueueFull("too many messages wait", hint="later")
            return await super().call(operation, params)

    async with connect(pal, Full(pal.services(home))) as other:
        assert await other.fails("message_send", message="hi") == "too many messages wait (later)"


async def test_long_transcripts_come_in_pieces_and_are_clipped(pal: Harness, connect: Connect) -> None:
    pal.model.says(*("y" * 20_000 for _ in range(3)))
    async with connect(pal) as other:
        for _ in range(3):
            await other.call("message_send", message="again")
        newest = await other.call("messages_read", sessionKey=MAIN, limit=1)
        assert newest["older"]
        (reply,) = newest["messages"]
        assert reply["text"].startswith("y" * 8_000 + "\n[… 12,000 more")
        whole: list[str] = []
        for skip in range(100):
            piece = await other.call("messages_read", sessionKey=MAIN, limit=1, skip=skip)
            whole += [each["id"] for each in piece["messages"]]
            if not piece.get("older"):
                break
        everything = await other.call("messages_read", sessionKey=MAIN, limit=200)
        assert whole[::-1] == [each["id"] for each in everything["messages"]]
        assert not (await other.call("messages_read", sessionKey=MAIN, skip=5_000))["messages"]


def risky(done: list[str]) -> Tool:
    async def prepare(run: ToolRun, sent: Any) -> PreparedCall:
        async def work() -> ToolOutput:
            done.append("done")
            return ToolOutput("done")

        return PreparedCall(Plan("risky", "paint the boat", arguments=dict(sent)), work, ask="paint is for good")

    async def run(run: ToolRun, sent: Any) -> ToolOutput:
        raise AssertionError("the gate runs what was prepared")

    return Tool(ToolSpec("risky", "", {"type": "object", "properties": {}}), run, prepare)


async def test_an_approval_is_answered_by_another_agent_only_where_the_owner_allows_it(
    workspace: Path, connect: Connect
) -> None:
    done: list[str] = []
    model = ScriptedProvider()
    model.says(calls(call("risky")), "Painted.")
    async with Harness(workspace, model=model, tools=[risky(done)]) as pal, connect(pal, approvals=True) as other:
        told = await other.call("message_send", message="paint", waitSeconds=0)
        async with asyncio.timeout(60):
            while not (waiting := (await other.call("approvals_list"))["waiting"]):
                pass
        asked = waiting[0]
        assert (asked["tool"], asked["reason"], asked["sessionKey"]) == ("risky", "paint is for good", MAIN)
        assert "paint the boat" in "\n".join(asked["plan"])
        answer = {"id": asked["id"], "answer": "allow-once"}
        assert "digest" in await other.fails("approvals_answer", **answer)
        assert await other.fails("approvals_answer", **answer, digest="0" * 64)
        for_good = {**answer, "answer": "allow-always", "digest": asked["digest"]}
        assert "allow-always" in await other.fails("approvals_answer", **for_good)
        assert not done
        settled = await other.call("approvals_answer", **answer, digest=asked["digest"])
        assert settled == {"id": asked["id"], "status": "allowed-once"}
        assert (await other.call("run_wait", runId=told["runId"]))["reply"] == "Painted."
        assert done == ["done"]


async def test_without_that_nobody_is_waited_for(workspace: Path, connect: Connect) -> None:
    done: list[str] = []
    model = ScriptedProvider()
    model.says(calls(call("risky")), "I was not allowed to.")
    async with Harness(workspace, model=model, tools=[risky(done)]) as pal, connect(pal) as other:
        assert (await other.call("message_send", message="paint"))["reply"] == "I was not allowed to."
        (result,) = await pal.tool_results()
        assert "no person could be asked" in result.text
        assert not done


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
TOOLS = served_tools(TABLE, ServeOptions(approvals=True))
FIELDS = sorted({field for row in TOOLS.values() for field in row.arguments.__struct_encode_fields__})


@given(
    name=st.sampled_from(sorted(TOOLS)),
    arguments=st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), ANY, max_size=4),
)
def test_whatever_is_sent_is_answered_or_refused_in_one_line(name: str, arguments: dict[str, Any]) -> None:
    """Without the wire: what the package lets through to us."""

    class Nobody:
        async def call(self, operation: Any, params: Any) -> Any:
            raise QueueFull("asked")

        def follow(self, feed: Any, params: Any) -> Any:
            raise QueueFull("asked")

    async def ask() -> Any:
        await load()
        desk = McpCalls(Nobody(), ServeOptions(approvals=True), lambda: "id")
        return await desk.call(name, arguments, None)

    result = asyncio.run(ask())
    assert result.is_error
    assert len(result.content[0].text.splitlines()) == 1
    assert "error in pal" not in result.content[0].text


def test_every_tool_tells_a_model_what_it_is_for_and_what_each_argument_means() -> None:
    for name_of_tool, row in TOOLS.items():
        schema = schema_of(row.arguments)
        assert row.tool.about.endswith(".")
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        for name, about in schema["properties"].items():
            assert about.get("description") or about.get("enum"), f"{name_of_tool}.{name}"
    assert set(served_tools(TABLE, ServeOptions())) == READING | {"message_send", "run_stop"}


@operation("scratch.count", scope="read", mcp=mcp_tool("count", "Count.", ("upto", Annotated[int, "how far"])))
async def count(services: Services, upto: int) -> Counted:
    return Counted(tuple(range(upto)))


@operation("scratch.shut", scope="admin", mcp=mcp_tool("shut", "Shut everything."))
async def shut(services: Services) -> Counted:
    return Counted(())


@operation("scratch.grant", scope="approvals", mcp=mcp_tool("grant", "Allow everything."))
async def grant(services: Services) -> Counted:
    return Counted(())


async def test_an_operation_that_opts_in_is_served_and_never_one_that_needs_admin(pal: Harness, home: Home) -> None:
    rows = (count, shut, grant, list_runs)  # the last one has not opted in
    assert set(served_tools(rows, ServeOptions())) == {"count"}
    served = served_tools(rows, ServeOptions(approvals=True))
    assert set(served) == {"count", "grant"}
    asked = McpCall(LocalCaller(pal.services(home)), ServeOptions(), pal.new_id, CallSlots(), nobody_told)
    assert await served["count"].answer(asked, served["count"].arguments(upto=3)) == {"numbers": (0, 1, 2)}


# A real child, over its standard input and output.


@contextlib.asynccontextmanager
async def child(home: Home, *arguments: str, errors: Any = None) -> AsyncIterator[Other]:
    from mcp import Client, StdioServerParameters, stdio_client

    env = {"PALINURUS_HOME": str(home.root), "HOME": str(home.root.parent), "PATH": os.environ["PATH"]}
    command = ["-m", "palinurus", "mcp", "serve", *arguments]
    serve = StdioServerParameters(command=sys.executable, args=command, env=env)
    async with Client(stdio_client(serve, errlog=errors or sys.stderr)) as client:
        yield Other(client)


@pytest.mark.slow
async def test_a_real_client_talks_to_a_real_child_while_nobody_holds_the_home(home: Home) -> None:
    async with asyncio.timeout(60), child(home) as other:
        assert other.client.server_info.name == "palinurus"
        assert "message_send" in await other.names()
        assert not (await other.call("conversations_list"))["conversations"]
        told = await other.call("message_send", message="Who are you?", idempotencyKey="one")
        assert told["status"] == "ok"
        assert told["reply"]
        assert await other.call("message_send", message="Who are you?", idempotencyKey="one") == told
        read = await other.call("messages_read", sessionKey=told["sessionKey"])
        assert [each["role"] for each in read["messages"]][:1] == ["user"]
    async with asyncio.timeout(60), child(home) as other:  # the next process knows it too
        assert await other.call("message_send", message="Who are you?", idempotencyKey="one") == told


@pytest.mark.slow
async def test_it_works_through_whoever_holds_the_home_and_outlives_them(home: Home) -> None:
    env = {"PALINURUS_HOME": str(home.root), "HOME": str(home.root.parent), "PATH": os.environ["PATH"]}
    async with asyncio.timeout(60), HomeAccess(home, env, "pal test", warn=print) as door:
        await door.enter()
        assert door.holds
        async with child(home) as other:
            before = await other.call("message_send", message="Who are you?", idempotencyKey="one")
            assert before["status"] == "ok"
            await door.close()
            assert await other.call("message_send", message="Who are you?", idempotencyKey="one") == before
            assert len((await other.call("conversations_list"))["conversations"]) == 1


@pytest.mark.slow
async def test_only_the_protocol_is_on_standard_output(home: Home) -> None:
    """A home with an odd config, which has something to tell, and a client that sends rubbish as well."""
    config = json.loads((home.root / "palinurus.json").read_text())
    (home.root / "palinurus.json").write_text(json.dumps({**config, "tools": {"allow": ["nonsense_tool", "*"]}}))
    env = {"PALINURUS_HOME": str(home.root), "HOME": str(home.root.parent), "PATH": os.environ["PATH"]}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "palinurus", "mcp", "serve"),
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    sent = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "status", "arguments": {}}},
    ]
    lines = [json.dumps(sent[0]), json.dumps(sent[1]), "rubbish", json.dumps(sent[2])]
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(("\n".join(lines) + "\n").encode())
    async with asyncio.timeout(60):
        answers = []
        while not answers or answers[-1].get("id") != 2:
            answers.append(json.loads(await process.stdout.readline()))
        process.stdin.close()  # hanging up ends it
        rest = await process.stdout.read()
        assert await process.wait() == 0
    assert rest == b""
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_though_nobody_hangs_up(home: Home, how: signal.Signals) -> None:
    env = {"PALINURUS_HOME": str(home.root), "HOME": str(home.root.parent), "PATH": os.environ["PATH"]}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "palinurus", "mcp", "serve"),
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    process.stdin.write(json.dumps(ping).encode() + b"\n")
    async with asyncio.timeout(60):
        await process.stdout.readline()
        process.send_signal(how)
        assert await process.wait() == -how


@pytest.mark.slow
async def test_looking_and_answering_exclude_each_other(home: Home) -> None:
    env = {"PALINURUS_HOME": str(home.root), "HOME": str(home.root.parent), "PATH": os.environ["PATH"]}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "palinurus", "mcp", "serve", "--read-only", "--allow-approvals"),
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (2, b"")
    assert b"exclude each other" in err
