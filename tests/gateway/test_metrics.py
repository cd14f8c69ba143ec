"""GET /metrics on a real server: what was done is counted, nobody is named, and strangers are told nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from test_exposition import parsed, told
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from palinurus.config.home import Home
from palinurus.domain.errors import Failure
from palinurus.domain.messages import Usage
from palinurus.gateway.auth.devices import ConnectAuthenticator
from palinurus.gateway.auth.guard import Guard, server_address
from palinurus.gateway.http.app import make_app, openapi
from palinurus.gateway.http.metrics import ROUTE_DOCS, Gauges, RequestLog, metrics_routes
from palinurus.gateway.http.server import HttpServer
from palinurus.gateway.hub import Hub
from palinurus.gateway.meter import Meter
from palinurus.gateway.websocket.methods import GatewayContext, Methods
from palinurus.gateway.websocket.socket import Sockets
from palinurus.operations.access import AccessStore, Register
from palinurus.operations.table import Table
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import Reply, call, fails
from palinurus.testing.harness import Harness

OWNER = "a-token-of-the-owner"


class Resting:
    """Implements gateway.http.metrics.Pulse."""

    lag_seconds = 0.25
    slow = 3
    late = 5


class Served:
    def __init__(self, pal: Harness, home: Home) -> None:
        self.register = Register(AccessStore(MemoryDatabase()), pal.clock, pal.new_id)
        guard = Guard(self.register, server_address(0), lambda: OWNER, pal.clock)
        services, hub = pal.services(home), Hub()
        desk = GatewayContext(services, guard, hub, pal.new_id, started_at=pal.clock.now_ms())
        sockets = Sockets(desk, Methods((), Table()), ConnectAuthenticator(guard, hub, pal.clock, pal.new_id))
        self.meter = Meter(pal.clock)
        self.stirred = 0
        pal.dispatcher.runs.listen(self.meter)
        routes = metrics_routes(desk, self.meter, Gauges(lambda: sockets.count, pal.deliveries.counts, Resting()))
        self.openapi = openapi(routes, ROUTE_DOCS)
        app = RequestLog(make_app(desk, sockets, routes), self.meter, pal.clock, self._stir)
        self.listening = HttpServer(app, ["127.0.0.1"], 0)
        guard.address = server_address(self.listening.port)
        url = f"http://127.0.0.1:{self.listening.port}"
        self.http = httpx2.AsyncClient(base_url=url, timeout=60)

    def _stir(self) -> None:
        self.stirred += 1

    async def get(self, secret: str = OWNER, path: str = "/metrics", **headers: str) -> httpx2.Response:
        return await self.http.get(path, headers={"authorization": f"Bearer {secret}", **headers})

    async def text(self) -> str:
        answer = await self.get()
        assert answer.status_code == 200
        return answer.text


@pytest.fixture
async def served(pal: Harness, home: Home) -> AsyncIterator[Served]:
    one = Served(pal, home)
    await one.listening.start()
    try:
        yield one
    finally:
        await one.http.aclose()
        async with asyncio.timeout(60):
            await one.listening.close()


async def test_runs_models_tokens_and_tools_are_counted(served: Served, pal: Harness) -> None:
    pal.model.says(Reply(calls=(call("ls", "c1"), call("fly", "c2")), usage=Usage(100, 10, 40, 7)), "Done.")
    await pal.hears("what is here?")
    pal.model.says(fails(Failure.BILLING, "no money"))
    await pal.hears("and now?")
    text = await served.text()
    assert told(text, "pal_runs_total", status="ok") == 1
    assert told(text, "pal_runs_total", status="error") == 1
    assert told(text, "pal_model_calls_total", provider="scripted", outcome="ok") == 2
    assert told(text, "pal_model_calls_total", provider="scripted", outcome="billing") == 1
    tokens = {kind: told(text, "pal_tokens_total", provider="scripted", model="model-1", kind=kind) for kind in KINDS}
    assert tokens == {"input": 200, "output": 20, "cache_read": 40, "cache_write": 7}
    assert told(text, "pal_tool_calls_total", tool="ls", outcome="ok") == 1
    assert told(text, "pal_tool_calls_total", tool="fly", outcome="error") == 1
    assert told(text, "pal_turn_seconds_count") == told(text, "pal_queue_seconds_count") == 2
    assert told(text, "pal_model_seconds_count", provider="scripted") == 3
    assert told(text, "pal_model_first_token_seconds_count", provider="scripted") == 1


KINDS = ("input", "output", "cache_read", "cache_write")


async def test_what_stands_now_is_looked_up_when_somebody_asks(served: Served, pal: Harness) -> None:
    text = await served.text()
    assert told(text, "pal_runs_running") == told(text, "pal_runs_queued") == told(text, "pal_approvals_pending") == 0
    assert told(text, "pal_websocket_clients") == 0
    assert told(text, "pal_deliveries", state="waiting") == 0
    assert told(text, "pal_loop_lag_seconds") == 0.25
    assert told(text, "pal_loop_slow_callbacks_total") == 3
    assert told(text, "process_resident_memory_bytes") > 1_000_000
    assert told(text, "process_cpu_seconds_total") > 0


async def test_a_run_that_goes_on_and_one_that_waits_are_told_apart(served: Served, pal: Harness) -> None:
    gate = asyncio.Event()

    class Slow(type(pal.model)):  # type: ignore[misc]
        async def stream(self, request: Any) -> AsyncIterator[Any]:
            await gate.wait()
            async for event in super().stream(request):
                yield event

    pal.model = Slow()
    first = await pal.submits("one")
    second = await pal.submits("two")
    async with asyncio.timeout(60):
        while first.waits:
            await asyncio.sleep(0)
    text = await served.text()
    assert (told(text, "pal_runs_running"), told(text, "pal_runs_queued")) == (1, 1)
    gate.set()
    await asyncio.gather(first.wait(60), second.wait(60))
    text = await served.text()
    assert (told(text, "pal_runs_running"), told(text, "pal_runs_queued")) == (0, 0)


async def test_nobody_is_named_and_there_are_few_samples_whoever_speaks(served: Served, pal: Harness) -> None:
    for person in range(30):
        pal.model.says(Reply(calls=(call(f"made_up_{person}", "c"),)), "Done.")
        await pal.hears("hello", key=f"agent:main:telegram:direct:person-{person}")
    for number in range(300):
        await served.get(path=f"/somewhere/{number}")
    text = await served.text()
    assert "person-" not in text
    assert "somewhere" not in text
    assert "telegram" not in text
    assert len(parsed(text)) < 400


async def test_requests_are_counted_by_route_and_status_and_refusals_by_their_reason(served: Served) -> None:
    await served.text()
    await served.get("wrong")
    await served.get(host="evil.example")
    await served.get(path="/nothing/here")
    await served.http.request("PROPFIND", "/metrics")
    text = await served.text()
    assert told(text, "pal_http_requests_total", method="GET", route="/metrics", status="200") == 1
    assert told(text, "pal_http_requests_total", method="GET", route="/metrics", status="401") == 1
    assert told(text, "pal_http_requests_total", method="GET", route="none", status="404") == 1
    assert told(text, "pal_http_requests_total", method="GET", route="none", status="421") == 1
    assert told(text, "pal_http_requests_total", method="other", route="/metrics", status="405") == 1
    assert told(text, "pal_refusals_total", surface="http", reason="unauthorized") == 1
    assert told(text, "pal_refusals_total", surface="http", reason="wrong-host") == 1
    assert served.stirred == 1  # looking costs nothing


async def test_websocket_clients_are_counted_and_those_who_are_turned_away_too(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "palinurus")
    address = f"ws://127.0.0.1:{served.listening.port}/"
    with pytest.raises(InvalidStatus):
        async with connect(address, origin="http://evil.example", open_timeout=60):  # type: ignore[arg-type]
            pass
    for _ in range(3):
        async with connect(address, open_timeout=60) as client:
            await client.send('{"type":"req","id":"1","method":"health","params":{}}')
            await asyncio.wait_for(client.wait_closed(), 60)
            assert client.close_code == 1008
    text = await served.text()
    assert told(text, "pal_refusals_total", surface="websocket", reason="forbidden") == 1
    assert told(text, "pal_refusals_total", surface="websocket", reason="policy") == 3
    lines = [each.getMessage() for each in caplog.records if each.name == "palinurus.gateway.http.metrics"]
    assert sorted(lines) == [
        "a WebSocket client was refused: forbidden",
        "a WebSocket client was refused: policy",
    ]


async def test_a_credential_with_the_scope_read_is_needed(served: Served) -> None:
    assert (await served.http.get("/metrics")).status_code == 401
    for scopes, status in (({"approvals"}, 403), ({"read"}, 200), ({"write"}, 200)):
        _, secret = await served.register.make_token(f"a program of {scopes}", scopes)  # type: ignore[arg-type]
        assert (await served.get(secret)).status_code == status


async def test_it_is_text_of_prometheus_that_its_own_parser_reads(served: Served, pal: Harness) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    await pal.hears("hello")
    answer = await served.get()
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(parser.text_string_to_metric_families(answer.text))
    assert {family.type for family in families} == {"counter", "gauge", "histogram"}
    assert all(family.documentation for family in families)
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    theirs = {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}
    assert theirs == parsed(answer.text)


def test_the_route_is_in_the_document(pal: Harness, home: Home) -> None:
    assert [(row.method, row.path, row.scope) for row in ROUTE_DOCS] == [("GET", "/metrics", "read")]


async def test_good_requests_are_told_at_level_debug_with_whose_they_were(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "palinurus.gateway.http.metrics")
    await served.text()
    (record,) = [each for each in caplog.records if each.name == "palinurus.gateway.http.metrics"]
    assert record.levelno == logging.DEBUG
    assert re.fullmatch(r"GET /metrics: 200 in \d+ ms by configured", record.getMessage())


async def test_many_refusals_of_a_kind_are_one_line_a_minute_and_hold_no_secret(
    served: Served, pal: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "palinurus")
    for number in range(200):
        await served.get(f"guess-{number}", path="/metrics")
    told_ = [each for each in caplog.records if each.name == "palinurus.gateway.http.metrics"]
    kinds = [each.getMessage().split(":")[1].split()[0] for each in told_]
    assert sorted(kinds) == ["401", "429"]
    assert all(each.levelno == logging.INFO for each in told_)
    assert not any("guess-" in each.getMessage() for each in caplog.records)
    pal.clock.advance(minutes=2)
    await served.get("guess-again")
    assert re.search(r"401 in \d+ ms by nobody, and 19 like it before$", caplog.records[-1].getMessage())


async def test_the_web_server_prints_nothing_of_its_own(
    served: Served, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for garbage in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /metrics HTTP/1.1\r\nhost: a b\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.listening.port)
        writer.write(garbage)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 60)
        writer.close()
    await served.text()
    assert not [each for each in caplog.records if each.name.startswith(("uvicorn", "websockets"))]
    assert capfd.readouterr() == ("", "")
