"""OAuth for clients of /mcp: the whole flow by the official client, and what thieves and floods meet."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from mcp_clients import CALLBACK, VERIFIER, Flow, address, client
from serving import PATIENCE, Running, configure, request, running

from palinurus.config.home import Home
from palinurus.domain.errors import StorageError
from palinurus.extensions.mcp.authorization import (
    AuthorizationServer,
    ClientMetadata,
    OAuthError,
    is_redirect,
    plain_name,
    register_client,
)
from palinurus.gateway.auth.guard import cookie_name
from palinurus.operations.access import AccessStore, Register
from palinurus.operations.scopes import SCOPES
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock


@pytest.fixture(scope="module", autouse=True)
def _client_library() -> None:
    import mcp.client.auth
    import mcp.client.streamable_http  # noqa: F401  takes long, and that is not ours


@pytest.fixture
def flow(served: Running) -> Flow:
    return Flow(served)


class Memory:
    """The official client's storage."""

    tokens: Any = None
    info: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.info

    async def set_client_info(self, client_info: Any) -> None:
        self.info = client_info


async def test_the_official_client_is_let_in_by_the_owner(served: Running, flow: Flow) -> None:
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    opened: list[str] = []
    storage = Memory()

    async def open_browser(url: str) -> None:
        opened.append(url)
        assert (await request(served.port, url.removeprefix(flow.base))).status == 200  # the page of the consent

    async def wait_for_answer() -> AuthorizationCodeResult:
        told = await flow.consent(urlsplit(opened[-1]).query, allow=True, scopes=["read", "write"])
        answer = dict(parse_qsl(urlsplit(told.json["redirect"]).query))
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    metadata = OAuthClientMetadata(redirect_uris=[CALLBACK], client_name="Inspector")
    auth = OAuthClientProvider(address(served), metadata, storage, open_browser, wait_for_answer)
    async with asyncio.timeout(PATIENCE), client(served, auth=auth) as connected:
        assert "message_send" in {tool.name for tool in (await connected.list_tools()).tools}
    (program,) = [each for each in served.register.devices() if each.kind == "program"]
    assert (program.name, program.platform, program.scopes) == ("Inspector", "127.0.0.1", ("read", "write"))
    first = storage.tokens.access_token
    token = served.register.holder_of(first)
    assert token is not None
    assert first not in str(served.register.tokens())  # only a digest is kept

    await served.register.revoke_device(program.id)  # as `pal devices revoke` does
    assert await flow.status(first) == 401
    async with asyncio.timeout(PATIENCE), client(served, auth=auth) as connected:  # it asks again
        assert (await connected.list_tools()).tools
    assert len(opened) == 2


async def test_tokens_count_at_mcp_only(flow: Flow, served: Running) -> None:
    told = await flow.tokens()
    assert (told["token_type"], told["scope"], told["expires_in"]) == ("Bearer", "read write", 3600)
    assert await flow.status(told["access_token"]) == 200
    assert await flow.status(told["refresh_token"]) == 401
    for path in ("/tools/invoke", "/v1/chat/completions"):
        assert await flow.status(told["access_token"], path) == 401
    own = f"localhost:{served.port}"  # the same gateway by another name is another audience
    assert await flow.status(told["access_token"], Host=own) == 401
    assert await flow.status(served.token, Host=own) == 200


async def test_a_renewal_replaces_both_tokens_and_a_second_one_ends_the_access(flow: Flow) -> None:
    first = await flow.tokens()
    told = await flow.renew(first["refresh_token"])
    assert told.status == 200
    assert await flow.status(first["access_token"]) == 401
    assert await flow.status(told.json["access_token"]) == 200
    again = await flow.renew(first["refresh_token"])
    assert (again.status, again.json["error"]) == (400, "invalid_grant")
    assert await flow.status(told.json["access_token"]) == 401  # whoever had it may be the thief
    assert (await flow.renew(told.json["refresh_token"])).status == 400


@pytest.mark.parametrize("stored", [0, 1])
async def test_a_renewal_that_could_not_be_stored_may_be_tried_again(
    flow: Flow, served: Running, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    first = await flow.tokens()
    give, left = served.register.give_token, stored

    async def fails(*arguments: Any) -> str:
        nonlocal left
        if not left:
            raise StorageError("the disk is full")
        left -= 1
        return await give(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(served.register, "give_token", fails)
        assert (await flow.renew(first["refresh_token"])).status >= 500
    told = await flow.renew(first["refresh_token"])
    assert (told.status, await flow.status(told.json["access_token"])) == (200, 200)


async def test_two_renewals_at_once_end_the_access(flow: Flow) -> None:
    first = await flow.tokens()
    told = await asyncio.gather(*(flow.renew(first["refresh_token"]) for _ in range(2)))
    assert 400 in [each.status for each in told]
    for each in told:
        if each.status == 200:
            assert await flow.status(each.json["access_token"]) == 401


async def test_a_code_is_valid_once_and_for_its_client_only(flow: Flow) -> None:
    await flow.register()
    mine = flow.client_id
    code = await flow.code()
    for changes in (
        {"code_verifier": "w" * 64},
        {"code_verifier": ""},
        {"redirect_uri": "http://127.0.0.1:7777/other"},
        {"client_id": "WyJYIixbImh0dHBzOi8vZXZpbC5leGFtcGxlLyJdXQ"},
        {"resource": "https://elsewhere.example/mcp"},
        {"code": "guessed"},
    ):
        fresh = await flow.code()
        told = await flow.token(**({"code": fresh} | changes))
        assert (told.status, told.json["error"]) == (400, "invalid_grant"), changes
        assert (await flow.token(fresh)).status == (200 if "code" in changes else 400)  # one try, also a wrong one
    told = await flow.token(code)
    assert await flow.status(told.json["access_token"]) == 200
    assert (await flow.token(code, client_id=mine)).status == 400
    assert await flow.status(told.json["access_token"]) == 401  # the code was replayed: its program is out


async def test_a_code_is_sent_only_where_the_client_registered(flow: Flow) -> None:
    await flow.register(CALLBACK, "https://app.example/cb?x=1")
    for wrong in (
        "https://evil.example/cb", f"{CALLBACK}/more", f"{CALLBACK}?x=1", "http://127.0.0.1:7777/CALLBACK",
        "https://app.example/cb", "https://app.example/cb?x=1&y=2", "https://app.example:444/cb?x=1",
        "https://app.example.evil.example/cb?x=1", "https://user@app.example/cb?x=1", "//evil.example",
        "http://localhost:7777/callback", f"{CALLBACK}#x", "javascript:alert(1)//http://127.0.0.1:7777/callback",
    ):  # fmt: skip
        told = await flow.consent(flow.query(redirect_uri=wrong), allow=True, scopes=["read"])
        assert told.status == 400, wrong
        assert "redirect" not in told.json
    other_port = "http://127.0.0.1:50123/callback"  # of a loopback address it may be another
    told = await flow.consent(flow.query(redirect_uri=other_port), allow=True, scopes=["read"])
    assert told.json["redirect"].startswith(f"{other_port}?code=")


def test_redirect_addresses_are_https_loopback_or_an_apps_own() -> None:
    good = ("https://claude.ai/api/cb", "http://localhost:3118/cb", "http://[::1]:1/", "cursor://anysphere.x/cb",
            "com.example.app:/cb", "https://a.example/?x=1")  # fmt: skip
    assert all(map(is_redirect, good))
    bad = ("http://evil.example/cb", "javascript:alert(1)", "javascript://x/%0aalert(1)", "data:text/html,x", "file:///x",
           "https:///x", "https://a.example/#x", "https://u:p@a.example/", "https://a.example/\nx", "https://a b/",
           "https:\\\\a.example", "", "a", "ws://a.example/", "intent://x", "vscode", "https://[::1", "https://a:x/",
           "https://a.example/" + "x" * 2000, "blob:https://a.example/x", "https://ä.example/")  # fmt: skip
    assert [each for each in bad if is_redirect(each)] == []
    assert plain_name("a\u202egood\nname\x00" + "x" * 100) == "a good name " + "x" * 48


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": ""}, "invalid_request"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
    ],
)
async def test_a_wrong_request_goes_back_to_the_client(flow: Flow, changes: dict[str, str], error: str) -> None:
    await flow.register()
    told = await flow.consent(flow.query(**changes), allow=True, scopes=["read"])
    answer = dict(parse_qsl(urlsplit(told.json["redirect"]).query))
    assert (answer["error"], answer["state"], "code" in answer) == (error, "s-1", False)


async def test_only_the_owner_consents_and_only_on_our_page(flow: Flow, served: Running) -> None:
    await flow.register()
    shown = (await flow.consent()).json
    assert shown == {"name": "A test", "redirectUri": CALLBACK, "scopes": ["read", "write"]}
    _, writes = await served.register.make_token("writes", ("write", "approvals"))
    assert (await flow.consent(token=writes, allow=True, scopes=["read"])).status == 403
    assert (await flow.consent(token="wrong", allow=True, scopes=["read"])).status == 401
    told = await flow.tokens()
    assert (await flow.consent(token=told["access_token"], allow=True, scopes=["read"])).status == 401
    sent = {"Authorization": f"Bearer {served.token}", "Content_Type": "application/json"}
    for origin in ("-", "null", "https://evil.example"):
        said = {**sent, "Origin": origin}
        assert (await request(served.port, "/mcp/consent", method="POST", body=b"{}", **said)).status == 403


async def test_the_login_of_the_dashboard_consents_with_both_its_parts(flow: Flow, served: Running) -> None:
    await flow.register()
    guard = served.gateway._guard
    secret, key = await guard.add_browser("b-1", "a browser", SCOPES, 30)
    cookie = {"Cookie": f"{cookie_name(flow.base)}={secret}", "Origin": flow.base, "Content_Type": "application/json"}

    async def ask(key: str) -> int:
        body = b'{"query": "%s", "key": "%s"}' % (flow.query().encode(), key.encode())
        return (await request(served.port, "/mcp/consent", method="POST", body=body, **cookie)).status

    assert await ask(key) == 200
    assert await ask("") == 401


async def test_the_owner_may_allow_less_or_nothing(flow: Flow) -> None:
    told = await flow.tokens("read")
    assert told["scope"] == "read"
    denied = await flow.consent(allow=False)
    answer = dict(parse_qsl(urlsplit(denied.json["redirect"]).query))
    assert answer["error"] == "access_denied"
    more = await flow.consent(flow.query(scope="read"), allow=True, scopes=["read", "write", "approvals", "admin"])
    code = dict(parse_qsl(urlsplit(more.json["redirect"]).query))["code"]
    assert (await flow.token(code)).json["scope"] == "read"


async def test_a_program_ends_its_own_access_and_no_other(flow: Flow) -> None:
    first = await flow.tokens()
    mine = flow.client_id
    other = Flow(flow.served)
    await other.register("https://other.example/cb")
    assert (await other.post("revoke", token=first["access_token"], client_id=other.client_id)).status == 200
    assert await flow.status(first["access_token"]) == 200
    assert (await flow.post("revoke", token=first["refresh_token"], client_id=mine)).status == 200
    assert await flow.status(first["access_token"]) == 401


async def test_registrations_cost_nothing_that_stays(flow: Flow, served: Running, home: Home) -> None:
    before = (len(served.register.devices()), len(served.register.tokens()))
    for at in range(200):
        assert (await flow.register(client_name=f"flood {at}")).status == 201
    assert (len(served.register.devices()), len(served.register.tokens())) == before
    for wrong in (
        {"redirect_uris": []}, {"redirect_uris": ["http://evil.example/"]}, {"redirect_uris": [CALLBACK] * 9},
        {"redirect_uris": [f"https://a.example/{'x' * 5000}"]}, {"grant_types": ["implicit"]}, {"redirect_uris": 7},
    ):  # fmt: skip
        told = await flow.register(**wrong)
        assert (told.status, set(told.json)) == (400, {"error", "error_description"}), wrong


async def test_guesses_are_limited(flow: Flow) -> None:
    await flow.register()
    statuses = [(await flow.renew(f"guess-{at}")).status for at in range(25)]
    assert (statuses[0], statuses[-1]) == (400, 429)
    assert (await flow.tokens())["access_token"]  # a valid one passes all the same


async def test_programs_survive_a_restart_of_the_gateway(home: Home) -> None:
    port = 0
    async with running(home) as served:
        first = Flow(served)
        told = await first.tokens()
        port = served.port
    async with running(home, port=port) as served:
        again = Flow(served)
        again.client_id = first.client_id
        assert await again.status(told["access_token"]) == 200
        assert (await again.renew(told["refresh_token"])).status == 200


async def test_tokens_end_after_an_hour_and_their_renewal_after_a_month() -> None:
    clock, counter = FakeClock(), iter(range(100))
    database = MemoryDatabase()
    register = Register(AccessStore(database), clock, lambda: f"id-{next(counter)}")
    server = AuthorizationServer(register, clock, lambda: f"id-{next(counter)}")
    flow = Flow(FakeRunning())  # type: ignore[arg-type]  # only its words are used
    flow.client_id = register_client(ClientMetadata((CALLBACK,), "x"))["client_id"]
    resource = f"{flow.base}/mcp"
    asked = server.read_request(flow.query(), resource)

    def body(code: str) -> str:
        said = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": flow.client_id,
            "code_verifier": VERIFIER,
        }
        return urlencode(said)

    late = server.consent(asked, ("read",))
    clock.advance(seconds=61)
    with pytest.raises(OAuthError, match="not valid"):
        await server.exchange(body(late), resource)
    told = await server.exchange(body(server.consent(asked, ("read",))), resource)
    assert register.holder_of(told.access_token) is not None
    clock.advance(seconds=3601)
    assert register.holder_of(told.access_token) is None
    renewal = urlencode(
        {"grant_type": "refresh_token", "refresh_token": told.refresh_token, "client_id": flow.client_id}
    )
    assert (await server.exchange(renewal, resource)).access_token
    assert len(register.tokens()) == 2  # renewed in their places
    clock.advance(days=31)
    assert [each for each in register.devices() if each.kind == "program"] == []


class FakeRunning:
    port = 1


async def test_a_gateway_without_authentication_asks_for_none(home: Home) -> None:
    configure(home, gateway={"auth": {"mode": "none"}})
    async with running(home) as served, client(served) as connected:
        assert (await connected.list_tools()).tools


async def test_the_page_runs_no_script_of_others(served: Running) -> None:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as browser:
        page = await browser.get("/mcp/authorize?client_id=%3Cscript%3E&state=<b>")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert page.headers["x-frame-options"] == "DENY"
        assert "<b>" not in page.text
        for part in ("consent.js", "consent.css"):
            assert (await browser.get(f"/mcp/{part}")).status_code == 200
