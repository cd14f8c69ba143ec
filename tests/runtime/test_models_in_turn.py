"""Models that fail in turn, seen through a whole house on loopback servers: who answers, what is said, what is kept."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palinurus.config.home import Home, find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import Notice, RunEvent, RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage
from palinurus.operations.credentials import store_credential
from palinurus.operations.models import probe_model, show_model_status
from palinurus.operations.runs import converse
from palinurus.operations.services import Services
from palinurus.operations.table import LocalCaller
from palinurus.runtime.runtime import Runtime
from palinurus.sessions.transcript import decode_row, messages_of
from support.wire import Answers, Behaviour, Cuts, ErrorInStream, Garbage, Hangs, Says, WireServer

FIRST, SECOND, THIRD = "first-key-0123456789", "second-key-0123456789", "third-key-0123456789"
ENV = {"FIRST_SECRET": FIRST}
NUMBERS = itertools.count(1)  # of messages: one that a home has heard is not heard again


async def no_wait(_: float) -> None:
    """Time passes at once."""


class OpenHome:
    """One runtime and what was heard from it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.events: list[RunEvent] = []

    async def hears(self, text: str) -> RunResult:
        inbound = Inbound(text, f"message-{next(NUMBERS)}")
        return await converse(LocalCaller(self.runtime.services), inbound, self.events.append)

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


def home_with(tmp_path: Path, config: dict[str, Any]) -> Home:
    root = tmp_path / "home"
    (root / "workspace").mkdir(parents=True)
    (root / "palinurus.json").write_text(json.dumps(config))
    return find_home({"PALINURUS_HOME": str(root), "HOME": str(tmp_path)})


@asynccontextmanager
async def living(home: Home, **env: str) -> AsyncIterator[OpenHome]:
    runtime = Runtime(home, {"HOME": str(home.user_home), **ENV, **env}, sleep=no_wait)
    try:
        yield OpenHome(runtime)
    finally:
        await runtime.close()


def provider(server: WireServer, **more: Any) -> dict[str, Any]:
    return {"baseUrl": server.base_url, **more}


def three(first: WireServer, second: WireServer, third: WireServer) -> dict[str, Any]:
    """Three providers on three wires, with keys from a variable, the file and the file again."""
    return {
        "models": {
            "providers": {
                "alpha": provider(first, apiKey="${FIRST_SECRET}"),
                "beta": provider(second, api="anthropic-messages"),
                "gamma": provider(third, api="google-generative-ai"),
            }
        },
        "agents": {"defaults": {"model": {"primary": "alpha/a", "fallbacks": ["beta/b", "gamma/g"]}}},
    }


def store_keys(home: Home) -> None:
    config_only = Services(home=home, env={"HOME": str(home.user_home)})
    store_credential(config_only, "beta", SECOND)
    store_credential(config_only, "gamma", THIRD)


def echoing(status: int, *keys: str, **headers: str) -> Answers:
    return Answers(status, {"error": {"message": f"no, not with {' or '.join(keys)}"}}, headers)


ALL_KEYS = (FIRST, SECOND, THIRD)
AT_ONCE = {"Retry-After": "0"}
MISBEHAVIOURS: list[Behaviour] = [
    echoing(400, *ALL_KEYS),
    echoing(401, *ALL_KEYS),
    echoing(402, *ALL_KEYS),
    echoing(403, *ALL_KEYS),
    echoing(404, *ALL_KEYS),
    echoing(429, *ALL_KEYS, **AT_ONCE),
    echoing(529, *ALL_KEYS, **AT_ONCE),
    Cuts("half a"),
    Garbage(b"data: {" + FIRST.encode()),
    ErrorInStream("half", {"message": f"broken {SECOND}", "type": "server_error"}),
]


@pytest.mark.parametrize("trouble", MISBEHAVIOURS, ids=lambda it: f"{type(it).__name__}{getattr(it, 'status', '')}")
async def test_when_every_provider_fails_in_turn_the_last_answers_and_no_secret_is_written_anywhere(
    tmp_path: Path, trouble: Behaviour, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "palinurus")
    async with (
        WireServer(otherwise=trouble) as first,
        WireServer(otherwise=trouble) as second,
        WireServer(Says("here I am"), otherwise=trouble) as third,
    ):
        home = home_with(tmp_path, three(first, second, third))
        store_keys(home)
        async with living(home) as services:
            good = await services.hears(f"is anybody there? my keys are {' '.join(ALL_KEYS)}")
            assert (good.status, good.text, good.model) == ("ok", "here I am", "gamma/g")
            assert any("alpha/a" in notice and "going on with beta/b" in notice for notice in services.notices)
            assert any("beta/b" in notice and "going on with gamma/g" in notice for notice in services.notices)
            bad = await services.hears("and now?")
            assert bad.status == "error"
            assert all(name in bad.error for name in ("alpha/a", "beta/b", "gamma/g"))
            told = msgspec.json.encode([services.events, good, bad]).decode()
    assert {server.headers[0].get(name) for server, name in
            ((first, "authorization"), (second, "x-api-key"), (third, "x-goog-api-key"))} == {
        f"Bearer {FIRST}", SECOND, THIRD}  # fmt: skip
    assert [key for key in ALL_KEYS if key in told or key in caplog.text] == []
    assert secrets_in(home.root) == {"credentials.json": {SECOND, THIRD}}


def secrets_in(root: Path) -> dict[str, set[str]]:
    """Every file below a folder that holds a key, byte by byte."""
    files = [path for path in root.rglob("*") if path.is_file()]
    assert any(path.name.startswith("home.sqlite") for path in files)
    held = {path: {key for key in ALL_KEYS if key.encode() in path.read_bytes()} for path in files}
    return {str(path.relative_to(root)): keys for path, keys in held.items() if keys}


async def test_a_fallback_inside_a_turn_starts_no_new_epoch_and_the_next_turn_begins_with_the_primary(
    tmp_path: Path,
) -> None:
    async with (
        WireServer(Says("one"), echoing(404), Says("three")) as first,
        WireServer(otherwise=Says("two")) as second,
    ):
        home = home_with(tmp_path, two(first, second))
        async with living(home) as services:
            models = [(await services.hears(text)).model for text in ("a", "b", "c")]
            session = await services.runtime.services.sessions.find(SessionKey.main())
            assert session
            rows = [decode_row(row) for row in await services.runtime.services.sessions.rows(session.id)]
    assert models == ["alpha/a", "beta/b", "alpha/a"]
    assert sum(getattr(entry, "custom_type", "") == "palinurus:epoch" for entry in rows) == 1
    replies = [message for message in messages_of(rows) if isinstance(message, AssistantMessage)]
    assert [f"{reply.provider}/{reply.model}" for reply in replies] == models
    assert (session.provider, session.model) == ("alpha", "a")
    asked, fallback = first.requests[1]["messages"], second.requests[0]["messages"]
    assert asked == fallback
    assert first.requests[2]["messages"][: len(asked)] == asked


def two(first: WireServer, second: WireServer, **defaults: Any) -> dict[str, Any]:
    price = {"id": "b", "cost": {"input": 1_000_000, "output": 0}}
    model = {"primary": "alpha/a", "fallbacks": ["beta/b"]}
    return {
        "models": {"providers": {"alpha": provider(first), "beta": provider(second, models=[price])}},
        "agents": {"defaults": {"model": model, **defaults}},
    }


@pytest.mark.parametrize("model", ["alpha/a", {"primary": "alpha/a"}])
async def test_a_model_without_fallbacks_stands_alone(tmp_path: Path, model: Any) -> None:
    async with WireServer(otherwise=echoing(404)) as first, WireServer() as second:
        async with living(home_with(tmp_path, two(first, second, model=model))) as services:
            result = await services.hears("hi")
        assert (result.status, result.error_kind) == ("error", "bad_request")
        assert second.requests == []


async def test_what_a_call_cost_is_booked_on_the_model_that_answered(tmp_path: Path) -> None:
    async with (
        WireServer(otherwise=echoing(404)) as first,
        WireServer(Says("two")) as second,
        living(home_with(tmp_path, two(first, second))) as services,
    ):
        await services.hears("hi")
        (total,) = await services.runtime.services.usage.totals("model", zone=UTC)
    assert (total.name, total.calls, total.cost, total.unpriced) == ("beta/b", 1, 20.0, 0)


async def test_a_stop_while_a_fallback_speaks_keeps_only_what_the_fallback_said(tmp_path: Path) -> None:
    async with (
        WireServer(Cuts("lost words"), otherwise=echoing(404)) as first,
        WireServer(Hangs("kept words")) as second,
        living(home_with(tmp_path, two(first, second))) as services,
    ):
        run = await services.runtime.services.dispatcher.submit(Inbound("hi", "1"))
        async for event in run.events():
            if getattr(event, "text", "") == "kept ":  # the last word is shown when it is whole
                run.stop.request()
        result = await run.wait(60)
    assert (result.status, result.text) == ("aborted", "kept words")


async def test_a_short_name_serves_as_primary_and_as_fallback(tmp_path: Path) -> None:
    async with WireServer(otherwise=echoing(404)) as first, WireServer(Says("two")) as second:
        aliases = {"alpha/a": {"alias": "quick"}, "beta/b": {"alias": "slow"}}
        config = two(first, second, models=aliases, model={"primary": "Quick", "fallbacks": ["slow"]})
        async with living(home_with(tmp_path, config)) as services:
            assert (await services.hears("hi")).model == "beta/b"


async def test_a_known_provider_without_a_key_says_so_without_asking_the_network(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"model": "openai/gpt-5-mini"}}}
    async with living(home_with(tmp_path, config)) as services:
        result = await services.hears("hi")
    assert (result.status, result.error_kind) == ("error", "auth")
    assert "has no key" in result.error
    assert "pal models auth add openai" in result.error


async def test_a_stored_key_chooses_its_provider_and_a_running_house_notices_it(tmp_path: Path) -> None:
    home = home_with(tmp_path, {"agents": {"defaults": {"model": "embedded/scout"}}})
    async with living(home) as services:
        caller = LocalCaller(services.runtime.services)
        assert (await caller.call(show_model_status, show_model_status.params())).model == "embedded/scout"
        home.config_path.unlink()
        store_credential(Services(home=home, env={"HOME": str(tmp_path)}), "groq", THIRD)
        status = await caller.call(show_model_status, show_model_status.params())
    assert (status.model, status.reason) == ("groq/openai/gpt-oss-120b", "a key for groq is stored")
    assert [key.id for key in status.credentials] == ["groq:default"]
    assert services.runtime.agents.redact(THIRD) == "[redacted]"


async def test_a_key_goes_on_resting_when_the_config_changes(tmp_path: Path) -> None:
    async with WireServer(otherwise=echoing(401)) as server:
        config = {
            "models": {"providers": {"alpha": provider(server, apiKey="${FIRST_SECRET}")}},
            "agents": {"defaults": {"model": "alpha/a"}},
        }
        home = home_with(tmp_path, config)
        async with living(home) as services:
            await services.hears("hi")
            home.config_path.write_text(json.dumps({**config, "session": {"idleMinutes": 5}}))
            status = await LocalCaller(services.runtime.services).call(show_model_status, show_model_status.params())
    assert [(key.id, key.state) for key in status.credentials] == [("alpha:config", "resting")]


def same_provider(server: WireServer, **more: Any) -> dict[str, Any]:
    """Two models of one provider, and another that could answer instead."""
    return {
        "models": {"providers": {"alpha": provider(server, apiKey="${FIRST_SECRET}"), **more}},
        "agents": {"defaults": {"model": {"primary": "alpha/a", "fallbacks": ["alpha/a2", *(f"{n}/b" for n in more)]}}},
    }


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_fallback_of_the_same_provider_is_asked_when_the_first_model_was_refused(
    tmp_path: Path, status: int
) -> None:
    async with WireServer(echoing(status), otherwise=Says("from a2")) as server, WireServer() as other:
        config = same_provider(server, beta=provider(other))
        async with living(home_with(tmp_path, config)) as services:
            models = [(await services.hears(text)).model for text in ("one", "two")]
        assert models == ["alpha/a2", "alpha/a2"]
        assert [request["model"] for request in server.requests] == ["a", "a2", "a2"]
        assert other.requests == []


async def test_the_next_process_does_not_ask_a_refused_key_first_until_the_key_is_changed(tmp_path: Path) -> None:
    async with WireServer(echoing(401), otherwise=Says("fine")) as server:
        home = home_with(tmp_path, {"models": {"providers": {"alpha": provider(server)}},
                                    "agents": {"defaults": {"model": "alpha/a"}}})  # fmt: skip
        config_only = Services(home=home, env={"HOME": str(tmp_path)})
        store_credential(config_only, "alpha", SECOND, name="first")
        store_credential(config_only, "alpha", THIRD, name="second")
        for _ in range(3):
            async with living(home) as services:
                assert (await services.hears("hi")).status == "ok"
        used = [headers["authorization"] for headers in server.headers]
        assert used == [f"Bearer {key}" for key in (SECOND, THIRD, THIRD, THIRD)]
        async with living(home) as services:
            states = {key.id: key.state for key in services.runtime.agents.credential_states("main")}
            store_credential(config_only, "alpha", FIRST, name="first")
            changed = {key.id: key.state for key in services.runtime.agents.credential_states("main")}
        assert states == {"alpha:first": "resting", "alpha:second": "ready"}
        assert changed == {"alpha:first": "ready", "alpha:second": "ready"}
        assert secrets_in(home.root) == {"credentials.json": {FIRST, THIRD}}


async def test_a_rest_on_the_disk_that_no_clock_can_have_set_is_not_believed(tmp_path: Path) -> None:
    async with WireServer(echoing(401), otherwise=Says("fine")) as server:
        home = home_with(tmp_path, same_provider(server))
        async with living(home) as services:
            assert (await services.hears("hi")).model == "alpha/a2"
        file = home.root / "derived" / "cooldowns.json"
        kept = json.loads(file.read_text())
        kept["rests"][0]["until"] += 10 * 365 * 24 * 3600 * 1000
        file.write_text(json.dumps(kept))
        async with living(home) as services:
            assert (await services.hears("hi")).model == "alpha/a"
        file.write_text("no JSON")
        async with living(home) as services:
            assert (await services.hears("hi")).model == "alpha/a"


async def test_three_rate_limits_that_ask_for_a_second_rest_the_key_for_a_second(tmp_path: Path) -> None:
    limited = Answers(429, {"error": {"message": "slow down"}}, {"Retry-After": "1"})
    async with WireServer(otherwise=limited) as server, living(home_with(tmp_path, same_provider(server))) as services:
        for _ in range(3):
            assert (await services.hears("hi")).error_kind == "rate_limit"
        (state,) = services.runtime.agents.credential_states("main")
        assert state.rests_seconds <= 1


async def test_a_probe_reports_who_answered_how_fast_or_the_typed_failure(tmp_path: Path) -> None:
    async with WireServer(Says("ok"), echoing(401, FIRST)) as first, WireServer() as second:
        home = home_with(tmp_path, two(first, second))
        async with living(home) as services:
            caller = LocalCaller(services.runtime.services)
            good = await caller.call(probe_model, probe_model.params("alpha/a"))
            bad = await caller.call(probe_model, probe_model.params("alpha/a"))
            assert await services.runtime.services.usage.totals("model", zone=UTC) == []
    assert (good.ok, good.answered, good.usage.total) == (True, "alpha/a", 25)
    assert 0 < good.first_ms <= good.total_ms
    assert (bad.ok, bad.error_kind) == (False, "auth")
    assert FIRST not in bad.error


async def test_a_sealed_file_without_its_passphrase_is_a_warning_and_the_reason_in_the_reply(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    home = home_with(tmp_path, {"agents": {"defaults": {"model": "openai/gpt-5-mini"}}})
    sealing = {"HOME": str(tmp_path), "PALINURUS_PASSPHRASE": "open sesame"}
    store_credential(Services(home=home, env=sealing), "openai", THIRD)
    async with living(home) as services:
        assert any("is encrypted" in warning for warning in services.runtime.services.warnings())
        assert "is encrypted" in (await services.hears("hi")).error
    async with living(home, PALINURUS_PASSPHRASE="open sesame") as services:
        assert services.runtime.services.warnings() == ()
        assert [key.id for key in services.runtime.agents.credential_states("main")] == ["openai:default"]
