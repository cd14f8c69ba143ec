"""Pages of other sites: those of allowed origins may read answers, all others get nothing that a browser shows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from serving import Running, configure, request, running

from palinurus.config.home import Home

APP = "https://app.example.org"
ASKS = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
}


@pytest.fixture
async def gateway(home: Home) -> AsyncIterator[Running]:
    configure(home, gateway={"controlUi": {"allowedOrigins": [f"{APP}/"]}})
    async with running(home) as one:
        yield one


async def test_a_preflight_of_an_allowed_origin_is_answered_without_a_credential(gateway: Running) -> None:
    answer = await request(gateway.port, "/v1/chat/completions", method="OPTIONS", Origin=APP, **ASKS)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type, x-stainless-lang"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers


async def test_a_public_page_may_call_this_machine_only_when_it_asks(gateway: Running) -> None:
    name = "access-control-allow-private-network"
    private = {"Access-Control-Request-Private-Network": "true"}
    asked = await request(gateway.port, "/v1/models", method="OPTIONS", Origin=APP, **ASKS, **private)
    assert asked.headers[name] == "true"
    silent = await request(gateway.port, "/v1/models", method="OPTIONS", Origin=APP, **ASKS)
    assert name not in silent.headers


async def test_answers_and_errors_can_be_read_by_the_allowed_page(gateway: Running) -> None:
    bearer = {"Authorization": f"Bearer {gateway.token}"}
    good = await request(gateway.port, "/v1/models", Origin=APP, **bearer)
    refused = await request(gateway.port, "/v1/models", Origin=APP)
    missing = await request(gateway.port, "/nowhere", Origin=APP, **bearer)
    in_url = await request(gateway.port, "/v1/models?token=x", Origin=APP)
    assert [each.status for each in (good, refused, missing, in_url)] == [200, 401, 404, 400]
    for answer in (good, refused, missing, in_url):
        assert answer.headers["access-control-allow-origin"] == APP
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


async def test_other_pages_programs_and_our_own_page_get_no_such_header(gateway: Running) -> None:
    own = f"http://127.0.0.1:{gateway.port}"
    bearer = {"Authorization": f"Bearer {gateway.token}"}
    answers = [
        await request(gateway.port, "/v1/models", Origin="https://evil.example", **bearer),
        await request(gateway.port, "/v1/models", method="OPTIONS", Origin="https://evil.example", **ASKS),
        await request(gateway.port, "/v1/models", method="OPTIONS", Origin="null", **ASKS),
        await request(gateway.port, "/v1/models", Origin=own, **bearer),
        await request(gateway.port, "/v1/models", **bearer),
    ]
    assert [each.status for each in answers] == [403, 403, 403, 200, 200]
    assert not any(name.startswith("access-control") for each in answers for name in each.headers)


async def test_a_preflight_with_a_wrong_host_is_refused(gateway: Running) -> None:
    answer = await request(gateway.port, "/v1/models", method="OPTIONS", host="rebound.example", Origin=APP, **ASKS)
    assert answer.status == 421


async def test_names_of_headers_are_names_and_nothing_else(gateway: Running) -> None:
    asked = {**ASKS, "Access-Control-Request-Headers": "x-a, b c, é, x-b, " + ", ".join(f"h{n}" for n in range(200))}
    answer = await request(gateway.port, "/v1/models", method="OPTIONS", Origin=APP, **asked)
    names = answer.headers["access-control-allow-headers"].split(", ")
    assert names[:3] == ["x-a", "x-b", "h0"]
    assert len(names) < 64
