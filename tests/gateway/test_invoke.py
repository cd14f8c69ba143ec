"""POST /tools/invoke on a real server: what a program reaches, what it never does, and that nothing is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import unicodedata
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.config.home import Home
from palinurus.domain.errors import StorageFull
from palinurus.domain.events import Plan
from palinurus.domain.messages import Origin
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, ToolSpec, tool
from palinurus.gateway.auth.devices import ConnectAuthenticator
from palinurus.gateway.auth.guard import Guard, server_address
from palinurus.gateway.http.app import make_app, openapi
from palinurus.gateway.http.invoke import MAX_BODY, NOT_OFFERED, ROUTE_DOCS, is_offered, routes
from palinurus.gateway.http.server import HttpServer
from palinurus.gateway.hub import Hub
from palinurus.gateway.websocket.methods import Endpoints, GatewayContext, Methods
from palinurus.gateway.websocket.socket import Sockets
from palinurus.operations.access import AccessStore, Register
from palinurus.operations.table import Table
from palinurus.runtime.runtime import Runtime
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.harness import Harness, audit_rows
from palinurus.tools.policy import Policy, Rules
from palinurus.tools.tool_names import ALIASES, GROUPS

OWNER = "a-token-of-the-owner"
SECRET = "hunter2-hunter2"
DANGEROUS = (
    *("exec", "process", "code_execution", "shell", "spawn", "terminal", "write", "edit", "apply_patch", "fs_write"),
    *("sessions_spawn", "sessions_send", "subagents", "message", "cron", "gateway", "nodes", "computer", "browser"),
    *("server__tool", "files__read", "whatsapp_login", "heartbeat_respond", "never_heard_of"),
)


class Bench:
    """Tools that remember what was done with them."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.runs: list[ToolRun] = []
        self.go = asyncio.Event()
        self.go.set()

    def tools(self) -> list[Tool]:
        @tool("session_status", "Tells how it stands.")
        async def session_status(run: ToolRun, action: str = "", what: str = "") -> ToolOutput:
            self.runs.append(run)
            self.done.append(f"{action} {what}".strip())
            await self.go.wait()
            return ToolOutput(f"all is well {what}", details={"action": action})

        @tool("pdf", "Fails.")
        async def pdf(run: ToolRun) -> ToolOutput:
            return ToolOutput(f"no such page {SECRET}", is_error=True)

        @tool("web_fetch", "Fetches.")
        async def web_fetch(run: ToolRun, size: int = 10) -> ToolOutput:
            return ToolOutput("x" * size)

        async def prepare(run: ToolRun, sent: Any) -> PreparedCall:
            async def work() -> ToolOutput:
                self.done.append("image")
                return ToolOutput("done")

            plan = Plan("image", f"paint {sent.get('what')} {SECRET}", arguments=dict(sent))
            return PreparedCall(plan, work, ask="it costs")

        image = Tool(ToolSpec("image", "Paints.", {"type": "object", "properties": {}}), _never, prepare)
        dangerous = [Tool(ToolSpec(name, "", {"type": "object"}), self._dangerous) for name in DANGEROUS]
        return [session_status, pdf, msgspec.structs.replace(web_fetch, outside=True), image, *dangerous]

    async def _dangerous(self, run: ToolRun, sent: Any) -> ToolOutput:
        self.done.append("danger")
        return ToolOutput("done")


async def _never(run: ToolRun, sent: Any) -> ToolOutput:
    raise AssertionError("the gate runs what was prepared")


class Served:
    def __init__(self, pal: Harness, home: Home, endpoints: Endpoints) -> None:
        self.register = Register(AccessStore(MemoryDatabase()), pal.clock, pal.new_id)
        guard = Guard(self.register, server_address(0), lambda: OWNER, pal.clock)
        services, hub = pal.services(home), Hub()
        desk = GatewayContext(services, guard, hub, pal.new_id, endpoints, pal.clock.now_ms())
        keeper = ConnectAuthenticator(guard, hub, pal.clock, pal.new_id)
        self.listening = HttpServer(
            make_app(desk, Sockets(desk, Methods((), Table()), keeper), routes(desk)), ["127.0.0.1"], 0
        )
        guard.address = server_address(self.listening.port)
        url = f"http://127.0.0.1:{self.listening.port}"
        self.http = httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {OWNER}"}, timeout=60)

    async def token(self, *scopes: Any) -> str:
        _, secret = await self.register.make_token("a program", scopes)
        return secret

    async def post(self, body: Any = None, /, secret: str = OWNER, **fields: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {secret}"}
        return await self.http.post("/tools/invoke", json=fields if body is None else body, headers=headers)


@contextlib.asynccontextmanager
async def serving(pal: Harness, home: Home, **endpoints: Any) -> AsyncIterator[Served]:
    served = Served(pal, home, Endpoints(**endpoints))
    await served.listening.start()
    try:
        yield served
    finally:
        await served.http.aclose()
        async with asyncio.timeout(60):
            await served.listening.close()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def files_apart(tools: list[Tool]) -> list[Tool]:
    """The harness has file tools of its own."""
    return [each for each in tools if each.spec.name not in ("read", "ls", "grep", "find", "memory_write")]


@pytest.fixture
async def pal(workspace: Any, bench: Bench) -> AsyncIterator[Harness]:
    async with Harness(workspace, tools=files_apart(bench.tools()), secrets=[SECRET]) as whole:
        yield whole


@pytest.fixture
async def served(pal: Harness, home: Home) -> AsyncIterator[Served]:
    async with serving(pal, home) as one:
        yield one


async def test_a_tool_is_called_for_the_owner_in_a_run_that_nobody_attends(
    served: Served, bench: Bench, pal: Harness
) -> None:
    answer = await served.post(tool="session_status", args={"what": "now"})
    assert answer.status_code == 200
    assert answer.json() == {
        "ok": True,
        "result": {"content": [{"type": "text", "text": "all is well now"}], "details": {"action": ""}},
    }
    (run,) = bench.runs
    assert (run.owner, run.attended, run.channel, run.sender) == (True, False, "http", "configured")
    assert (str(run.key), run.private) == ("agent:main:main", True)
    assert [(row.kind, row.outcome, row.tool) for row in audit_rows(pal.database)] == [
        ("call", "allowed: profile", "session_status"),
        ("result", "ok", "session_status"),
    ]
    assert {row.run_id for row in audit_rows(pal.database)} == {run.run_id}
    assert run.run_id == f"invoke-{audit_rows(pal.database)[0].call_id}"


async def test_the_other_spelling_the_action_and_the_place_are_taken(served: Served, bench: Bench) -> None:
    await served.post(name="session_status", action="show", sessionKey="agent:main:telegram:group:7", agentId="main")
    await served.post(tool="session_status", action="show", args={"action": "mine"})
    assert bench.done == ["show", "mine"]
    assert (str(bench.runs[0].key), bench.runs[0].private) == ("agent:main:telegram:group:7", False)
    fetched = await served.post(tool="web_fetch", action="show")  # it has no action
    assert fetched.status_code == 200
    assert fetched.json()["result"]["origin"] == Origin.OUTSIDE


async def test_what_a_tool_says_went_wrong_is_told_without_secrets(served: Served) -> None:
    answer = await served.post(tool="pdf")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["ok"], body["code"], body["status"]) == (False, "TOOL_FAILED", 422)
    assert body["error"] == {"type": "tool_error", "message": body["detail"]}
    assert "no such page" in body["detail"]
    assert SECRET not in answer.text
    wrong = await served.post(tool="session_status", args={"colour": "red"})
    assert (wrong.status_code, "colour" in wrong.json()["detail"]) == (422, True)


async def test_long_results_are_clipped(served: Served) -> None:
    answer = await served.post(tool="web_fetch", args={"size": 1_000_000})
    (block,) = answer.json()["result"]["content"]
    assert len(block["text"]) < 20_000
    assert "characters cut here" in block["text"]


async def test_what_needs_a_person_is_not_done(served: Served, bench: Bench) -> None:
    answer = await served.post(tool="image", args={"what": "boat"})
    assert answer.status_code == 422
    assert "no person could be asked" in answer.json()["detail"]
    assert not bench.done


async def test_a_dry_run_shows_the_plan_and_does_nothing(served: Served, bench: Bench, pal: Harness) -> None:
    answer = await served.post(tool="image", args={"what": "boat"}, dryRun=True, idempotencyKey="k")
    result = answer.json()["result"]
    assert "paint boat" in result["content"][0]["text"]
    assert (result["details"]["dryRun"], result["details"]["asks"]) == (True, "it costs")
    assert SECRET not in answer.text
    assert (await served.post(tool="session_status", dryRun=True)).status_code == 200
    assert (await served.post(tool="exec", dryRun=True)).status_code == 404
    assert not bench.done
    assert not [row for row in audit_rows(pal.database) if row.kind == "call"]


# What is not reached.


def disguises(name: str) -> list[str]:
    wide = "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in name)
    return [
        *(name, name.upper(), name.title(), f" {name}", f"{name} ", f"{name}\n", f"{name}\0", f"./{name}", f"{name}*"),
        *(wide, name.replace("e", "е"), name.replace("s", "ſ"), unicodedata.normalize("NFD", name), f"\u200b{name}"),
        *(f"group:{name}", f"functions.{name}", f"mcp__{name}", f"tools/{name}", name.replace("_", "-")),
    ]


async def test_no_dangerous_tool_is_offered_under_any_name(served: Served, bench: Bench) -> None:
    names = [*DANGEROUS, *ALIASES, *(f"group:{group}" for group in GROUPS), "*", "", "group:openclaw"]
    tried = [*dict.fromkeys(each for name in names for each in disguises(name))]
    arguments = {"command": "id", "path": "a", "text": "b"}
    for first in range(0, len(tried), 16):
        some = tried[first : first + 16]
        answers = await asyncio.gather(*(served.post(tool=each, args=arguments) for each in some))
        refused = [answer.status_code in (400, 404) for answer in answers]
        assert all(refused), dict(zip(some, refused, strict=True))
    assert len(tried) > 500
    assert not bench.done


async def test_a_tool_that_is_not_reached_looks_like_one_that_is_not_there(served: Served, pal: Harness) -> None:
    not_there = await served.post(tool="nothing")
    for name in DANGEROUS:
        answer = await served.post(tool=name)
        assert answer.status_code == 404
        assert answer.json() == {**not_there.json(), "title": f"there is no tool {name!r}"}
    assert [(row.kind, row.outcome, row.tool) for row in audit_rows(pal.database)] == [
        ("decision", "denied: invoke", name) for name in DANGEROUS
    ]


async def test_what_the_policy_denies_is_not_there_either(workspace: Any, home: Home, bench: Bench) -> None:
    policy = Policy(
        everybody=Rules(profile="full", deny=("web_*",)),
        by_sender={"channel:http:configured": Rules(deny=("pdf",))},
    )
    tools = files_apart(bench.tools())
    async with Harness(workspace, tools=tools, policy=policy) as pal, serving(pal, home) as served:
        assert (await served.post(tool="web_fetch")).status_code == 404
        assert (await served.post(tool="pdf")).status_code == 404
        assert (await served.post(tool="session_status")).status_code == 200
        denied = [row.outcome for row in audit_rows(pal.database) if row.kind == "decision"]
        assert denied == ["denied: deny", "denied: deny"]


async def test_the_policy_still_holds_for_what_the_owner_takes_off_the_list(
    workspace: Any, home: Home, bench: Bench
) -> None:
    policy = Policy(everybody=Rules(profile="full", deny=("cron",)))
    tools = files_apart(bench.tools())
    async with (
        Harness(workspace, tools=tools, policy=policy) as pal,
        serving(pal, home, invoke_allow=("cron", "message")) as served,
    ):
        assert (await served.post(tool="cron")).status_code == 404
        assert (await served.post(tool="message")).status_code == 200
        assert (await served.post(tool="exec")).status_code == 404


async def test_deny_wins_over_allow(pal: Harness, home: Home, bench: Bench) -> None:
    async with serving(pal, home, invoke_allow=("*",), invoke_deny=("bash", "session_*")) as served:
        assert (await served.post(tool="exec")).status_code == 404
        assert (await served.post(tool="session_status")).status_code == 404
        assert (await served.post(tool="server__tool")).status_code == 200


NAMES = st.sampled_from([*DANGEROUS, *ALIASES, *(name for names in GROUPS.values() for name in names)])


@given(name=NAMES, allow=st.lists(NAMES, max_size=3), deny=st.lists(NAMES, max_size=3))
def test_deny_always_wins_and_nothing_but_allow_opens(name: str, allow: list[str], deny: list[str]) -> None:
    reached = is_offered(name, tuple(allow), tuple(deny))
    if name in deny:
        assert not reached
    if reached and not is_offered(name):
        assert is_offered(name, tuple(allow))
        assert allow
    for variant in (name.upper(), f" {name} "):
        assert is_offered(variant, tuple(allow), tuple(deny)) == reached


@given(st.text(max_size=40))
def test_a_name_that_no_group_knows_is_not_reached(name: str) -> None:
    known = {each for names in GROUPS.values() for each in names} | set(ALIASES)
    if name.strip().casefold() not in known:
        assert not is_offered(name)


def test_the_list_says_all_that_we_know_to_be_dangerous() -> None:
    assert not [name for name in DANGEROUS if is_offered(name)]
    assert not [name for name in NOT_OFFERED if is_offered(name)]


async def test_of_the_tools_that_there_really_are_these_are_reached(home: Home) -> None:
    """A new tool must be placed here on purpose."""
    runtime = Runtime(home, {})
    try:
        tools = {each.spec.name for each in await runtime.services.toolsets.tools("main")}
    finally:
        await runtime.close()
    assert {name for name in tools if is_offered(name)} <= {
        *("read", "ls", "grep", "find", "memory_write", "web_fetch", "web_search", "session_status"),
        *("sessions_list", "sessions_history", "sessions_search", "memory_search", "memory_get", "agents_list"),
        *("memory_recall", "memory_retain"),
    }
    assert {"exec", "process", "write", "edit"} <= tools


# Who may, and how much.


async def test_only_the_scope_write_calls_tools(served: Served, bench: Bench) -> None:
    assert (await served.post(secret=await served.token("read"), tool="session_status")).status_code == 403
    assert (await served.post(secret="wrong", tool="session_status")).status_code == 401
    await served.register.revoke_token("a program")
    assert (await served.post(secret=await served.token("approvals"), tool="session_status")).status_code == 403
    await served.register.revoke_token("a program")
    assert not bench.done
    assert (await served.post(secret=await served.token("write"), tool="session_status")).status_code == 200


async def test_a_body_that_is_too_large_or_none_is_refused(served: Served, bench: Bench) -> None:
    large = await served.post(tool="session_status", args={"what": "x" * MAX_BODY})
    assert large.status_code == 413

    async def pieces() -> AsyncIterator[bytes]:  # no length is told
        yield b'{"tool": "session_status", "args": {"what": "'
        for _ in range(64):
            yield b"x" * 65_536
        yield b'"}}'

    kind = {"content-type": "application/json"}
    assert (await served.http.post("/tools/invoke", content=pieces(), headers=kind)).status_code == 413
    for body in (b"", b"[]", b"{", b'{"tool": 3}', b'{"tool": "a", "args": []}', b"\xff", b'{"args":' + b"[" * 60_000):
        assert (await served.http.post("/tools/invoke", content=body, headers=kind)).status_code == 400, body[:20]
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await served.http.post("/tools/invoke", content=b"tool=exec", headers=form)).status_code == 415
    assert (await served.http.get("/tools/invoke")).status_code == 405
    assert not bench.done


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 400),
        ({"tool": "read", "name": "exec"}, 400),
        ({"tool": "x" * 129}, 400),
        ({"tool": "session_status", "idempotencyKey": "k" * 201}, 400),
        ({"tool": "session_status", "agentId": "nobody"}, 404),
        ({"tool": "session_status", "sessionKey": "agent:nobody:main"}, 404),
        ({"tool": "session_status", "sessionKey": "agent:../../etc:main"}, 400),
    ],
)
async def test_what_makes_no_sense_is_told(served: Served, bench: Bench, fields: dict[str, Any], status: int) -> None:
    answer = await served.post(fields)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert not bench.done


async def test_a_call_that_takes_too_long_is_stopped_and_not_made_again(
    served: Served, bench: Bench, pal: Harness
) -> None:
    bench.go.clear()
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, timeout_seconds=1.0)
    assert (await served.post(tool="session_status", idempotencyKey="k")).status_code == 504
    again = await served.post(tool="session_status", idempotencyKey="k")
    assert (again.status_code, again.json()["code"]) == (409, "ALREADY_MADE")
    assert len(bench.done) == 1


async def test_more_than_a_number_at_once_are_told_to_wait(
    served: Served, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palinurus.gateway.http.invoke.AT_ONCE", 2)
    bench.go.clear()
    calls = [asyncio.create_task(served.post(tool="session_status")) for _ in range(2)]
    await until(lambda: len(bench.done) == 2)
    full = await served.post(tool="session_status")
    assert (full.status_code, "retry-after" in full.headers) == (429, True)
    bench.go.set()
    assert [answer.status_code for answer in await asyncio.gather(*calls)] == [200, 200]
    assert (await served.post(tool="session_status")).status_code == 200


# Twice is once.


async def test_the_same_key_gets_the_same_answer_and_runs_once(served: Served, bench: Bench, pal: Harness) -> None:
    asked = {"tool": "session_status", "args": {"what": "a"}, "idempotencyKey": "k"}
    first, again = await served.post(asked), await served.post(asked)
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert bench.done == ["a"]
    failed = {"tool": "pdf", "idempotencyKey": "k"}
    assert (await served.post(failed)).json() == (await served.post(failed)).json()
    assert len([row for row in audit_rows(pal.database) if row.kind == "call"]) == 2


async def test_while_the_first_goes_on_the_second_waits_for_it(served: Served, bench: Bench) -> None:
    bench.go.clear()
    asked = {"tool": "session_status", "idempotencyKey": "k"}
    calls = [asyncio.create_task(served.post(asked)) for _ in range(5)]
    await until(lambda: bool(bench.done))
    bench.go.set()
    answers = await asyncio.gather(*calls)
    assert len({answer.text for answer in answers}) == 1
    assert len(bench.done) == 1


async def test_other_arguments_and_other_callers_are_other_calls(served: Served, bench: Bench) -> None:
    secret = await served.token("write")
    await served.post(tool="session_status", args={"what": "a"}, idempotencyKey="k")
    await served.post(tool="session_status", args={"what": "b"}, idempotencyKey="k")
    await served.post(tool="session_status", args={"what": "a"}, idempotencyKey="k", secret=secret)
    assert bench.done == ["a", "b", "a"]


async def test_after_a_restart_a_call_that_was_made_is_not_made_again(pal: Harness, home: Home, bench: Bench) -> None:
    asked = {"tool": "session_status", "idempotencyKey": "k"}
    async with serving(pal, home) as before:
        assert (await before.post(asked)).status_code == 200
    async with serving(pal, home) as after:
        again = await after.post(asked)
        assert (again.status_code, again.json()["code"]) == (409, "ALREADY_MADE")
        assert (await after.post({**asked, "idempotencyKey": "new"})).status_code == 200
    assert len(bench.done) == 2


async def test_a_call_that_was_refused_may_be_tried_again_under_its_key(
    workspace: Any, home: Home, bench: Bench
) -> None:
    asked = {"tool": "cron", "idempotencyKey": "k"}
    async with Harness(workspace, tools=files_apart(bench.tools())) as pal:
        async with serving(pal, home) as served:
            assert (await served.post(asked)).status_code == 404
        async with serving(pal, home, invoke_allow=("cron",)) as served:
            assert (await served.post(asked)).status_code == 200


async def test_what_cannot_be_recorded_is_not_done(served: Served, bench: Bench, pal: Harness) -> None:
    pal.database.failure = StorageFull("the disk is full")
    answer = await served.post(tool="session_status")
    assert answer.status_code == 422
    assert "could not be recorded" in answer.json()["detail"]
    assert (await served.post(tool="exec")).status_code == 507
    assert not bench.done


async def test_the_document_describes_it(pal: Harness, home: Home) -> None:
    document = openapi([], ROUTE_DOCS)
    told = document["paths"]["/tools/invoke"]["post"]
    assert told["x-scope"] == "write"
    fields = document["components"]["schemas"]["InvokeTool"]["properties"]
    assert {"tool", "name", "action", "args", "sessionKey", "agentId", "idempotencyKey", "dryRun"} == set(fields)


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0)
