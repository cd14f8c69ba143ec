"""Requests that arrive: what becomes of them, and that an accepted one is stored before its sender is told."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hooks_home import BEARER, PATIENCE, SIGNED, TOKEN, configure, hooks_gateway, request, running

from palinurus.config.home import Home
from palinurus.domain.envelope import Inbound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, UserMessage
from palinurus.extensions.schedule.store import CronStore
from palinurus.sessions.transcript import decode_row, messages_of
from palinurus.storage.jobs import RUN
from palinurus.storage.transaction import decoded


async def message_of(served: Any, run_id: str) -> tuple[str, Inbound]:
    job = await served.running.runtime.services.jobs._queue.find(run_id)
    assert job is not None
    assert job.kind == RUN
    return job.lane, decoded(bytes(job.payload), Inbound, "a message")


async def test_a_mapping_makes_a_message_of_the_payload_and_the_agent_answers_it(home: Home) -> None:
    mapping = {
        "id": "issues",
        "name": "Issues",
        "sessionKey": "hook:issue:{{issue.number}}",
        "messageTemplate": "{{issue.labels[1].name}}: {{issue.title}} by {{issue.user.login}} ({{headers.x-event}})",
        "model": "mine/test",
        "thinking": "low",
        "timeoutSeconds": 90,
    }
    issue = {"number": 7, "title": "Rudder stuck", "labels": [{"name": "a"}, {"name": "bug"}]}
    async with hooks_gateway(home, {"mappings": [mapping]}) as served:
        answer = await served.post("/hooks/issues", {"issue": issue}, X_Event="opened")
        assert answer.json == {"ok": True, "runId": answer.json["runId"], "missing": ["issue.user.login"]}
        assert (await served.result(answer)).text == "aye"
        lane, message = await message_of(served, answer.json["runId"])
        assert lane == "agent:main:hook:issue:7"
        head, _, text = message.text.partition("\n")
        assert "Webhook Issues" in head
        assert text == "bug: Rudder stuck by  (opened)"
        assert (message.origin, message.sources, message.attended) == (Origin.OUTSIDE, ("webhook:issues",), False)
        assert (message.model, message.thinking, message.timeout_seconds) == ("mine/test", "low", 90.0)
        asked = json.dumps(served.model.requests[-1])
        assert "Rudder stuck" in asked


async def test_the_row_of_a_message_is_there_when_its_sender_is_told(home: Home) -> None:
    async with hooks_gateway(home, {}) as served:
        answer = await served.post("/hooks/agent", {"message": "count the sails"})
        assert answer.status == 202
        lane, message = await message_of(served, answer.json["runId"])
        assert lane.startswith("agent:main:hook:")
        assert "count the sails" in message.text
        await served.result(answer)


async def test_wake_is_an_event_for_the_main_session(home: Home) -> None:
    async with hooks_gateway(home, {}) as served:
        answer = await served.post("/hooks/wake", {"text": "the tide turns", "mode": "now"})
        await served.result(answer)
        services = served.running.runtime.services
        session = await services.sessions.find(SessionKey.parse("agent:main:main"))
        assert session is not None
        assert session.delivery is None  # nobody wrote there: it is not where the owner is
        stored = messages_of([decode_row(row) for row in await services.sessions.rows(session.id)])
        (asked,) = (each for each in stored if isinstance(each, UserMessage))
        assert "the tide turns" in asked.text
        assert asked.origin == Origin.OUTSIDE
        later = await served.post("/hooks/wake", {"text": "x", "mode": "next-heartbeat"})
        assert later.status == 400
        assert "the heartbeat of main is off" in later.json["title"]


async def test_an_event_for_the_next_heartbeat_waits_for_it_as_text_from_outside(home: Home) -> None:
    known = json.loads(home.config_path.read_text())["agents"]["defaults"]
    agents = {"defaults": known | {"model": "mine/test", "heartbeat": {"every": "30m"}}}
    async with hooks_gateway(home, {}, agents=agents) as served:
        for _ in range(2):  # the same event sent twice is one
            event = {"text": "the tide turns", "mode": "next-heartbeat"}
            answer = await served.post("/hooks/wake", event, Idempotency_Key="tide-1")
            assert (answer.status, answer.json) == (202, {"ok": True})
        services = served.running.runtime.services
        beat = await CronStore(services.database, services.new_id).find("heartbeat:main")
        assert beat is not None
        (note,) = beat.state.notes
        assert "the tide turns" in note.text
        assert note.sources == ("webhook:wake",)


@pytest.mark.parametrize("headers", [{"Authorization": "", "X_OpenClaw_Token": TOKEN}, {"Authorization": BEARER}])
async def test_the_token_is_taken_from_either_header(home: Home, headers: dict[str, str]) -> None:
    async with hooks_gateway(home, {}) as served:
        assert (await served.post("/hooks/agent", {"message": "hi"}, **headers)).status == 202


async def test_the_same_idempotency_key_is_the_same_run(home: Home) -> None:
    mapping = {"id": "plain", "messageTemplate": "{{body}}"}
    async with hooks_gateway(home, {"mappings": [mapping]}) as served:
        for header in ("Idempotency_Key", "X_GitHub_Delivery"):
            said = {header: f"key of {header}", "Content_Type": "text/plain"}
            first = await served.post("/hooks/plain", raw=b"ahoy", **said)
            await served.result(first)
            again = await served.post("/hooks/plain", raw=b"ahoy", **said)
            other = await served.post("/hooks/plain", raw=b"ahoy", **(said | {header: f"another {header}"}))
            assert again.json == first.json
            assert other.json["runId"] != first.json["runId"]
            await served.result(other)
        by_body = [await served.post("/hooks/agent", {"message": "x", "idempotencyKey": "k"}) for _ in range(2)]
        assert by_body[0].json == by_body[1].json
        await served.result(by_body[0])
    assert len(served.model.requests) == 5


async def test_the_same_key_is_the_same_run_after_a_restart_too(home: Home) -> None:
    async with hooks_gateway(home, {}) as served:
        first = await served.post("/hooks/agent", {"message": "x"}, Idempotency_Key="k")
        await served.result(first)
    async with hooks_gateway(home, {}) as served:
        again = await served.post("/hooks/agent", {"message": "x"}, Idempotency_Key="k")
        assert again.json == first.json
        assert not served.model.requests


async def test_a_mapping_can_take_the_key_from_the_payload(home: Home) -> None:
    mapping = SIGNED | {"idempotencyTemplate": "{{id}}"}
    async with hooks_gateway(home, {"mappings": [mapping]}) as served:
        first = await served.signed({"text": "paid", "id": "evt_1", "attempt": 1})
        again = await served.signed({"text": "paid", "id": "evt_1", "attempt": 2})
        assert first.status == 202
        assert again.json == first.json


async def test_mappings_of_one_path_are_chosen_by_the_source(home: Home) -> None:
    mappings = [
        {"id": "a", "match": {"path": "mail", "source": "work"}, "messageTemplate": "work {{n}}"},
        {"id": "b", "match": {"path": "mail", "source": "home"}, "messageTemplate": "home {{n}}"},
    ]
    async with hooks_gateway(home, {"mappings": mappings, "path": "/in"}) as served:
        answer = await served.post("/in/mail", {"source": "home", "n": 3})
        assert (await message_of(served, answer.json["runId"]))[1].text.endswith("\nhome 3")
        assert (await served.post("/in/mail", {"source": "elsewhere"})).status == 404
        assert (await served.post("/hooks/mail", {"source": "home"})).status == 404
        await served.result(answer)


async def test_the_preset_of_openclaw_for_gmail(home: Home) -> None:
    mail = {"messages": [{"id": "18F", "from": "Ada", "subject": "Figs", "snippet": "ripe", "body": "come"}]}
    async with hooks_gateway(home, {"presets": ["gmail"]}) as served:
        answer = await served.post("/hooks/gmail", mail)
        lane, message = await message_of(served, answer.json["runId"])
        assert lane == "agent:main:hook:gmail:18f"
        assert message.text.endswith("New email from Ada\nSubject: Figs\nripe\ncome")
        await served.result(answer)


async def test_a_reply_goes_to_the_named_channel(home: Home) -> None:
    async with hooks_gateway(home, {}) as served:
        answer = await served.post("/hooks/agent", {"message": "x", "channel": "telegram", "to": "42"})
        await served.result(answer)
        (delivery,) = await served.running.runtime.services.deliveries.recent()
        assert (delivery.channel, delivery.to, delivery.text) == ("telegram", "42", "aye")
        quiet = await served.post("/hooks/agent", {"message": "x", "deliver": False, "channel": "telegram", "to": "1"})
        await served.result(quiet)
        assert len(await served.running.runtime.services.deliveries.recent()) == 1
        assert (await served.post("/hooks/agent", {"message": "x", "channel": "telegram"})).status == 400


async def test_a_config_that_changes_holds_at_once(home: Home) -> None:
    async with hooks_gateway(home, {}) as served:
        newer = "another-hook-token-that-is-long"
        configure(home, hooks={"enabled": True, "token": newer})
        assert (await served.post("/hooks/agent", {"message": "x"})).status == 401
        assert (await served.post("/hooks/agent", {"message": "x"}, Authorization=f"Bearer {newer}")).status == 202
        configure(home, hooks={"enabled": False, "token": newer})
        assert (await served.post("/hooks/agent", {"message": "x"}, Authorization=f"Bearer {newer}")).status == 404


CODE = """
import asyncio, sys
from palinurus.config.home import find_home
from palinurus.gateway.settings import gateway_settings
from palinurus.runtime.gateway import Gateway
from palinurus.runtime.runtime import Runtime
import os

async def main():
    runtime = Runtime(find_home(os.environ), os.environ)
    Gateway(runtime, gateway_settings(runtime.services.config, port=0))
    await runtime.close()

asyncio.run(main())
print(*(name for name in sys.modules if name.startswith("palinurus.extensions.webhooks")))
"""


@pytest.mark.parametrize("enabled", [True, False])
async def test_webhooks_are_imported_only_when_the_config_has_them_on(home: Home, enabled: bool) -> None:
    configure(home, hooks={"enabled": enabled, "token": TOKEN, "internal": {"enabled": True}})
    env = {"PATH": os.environ["PATH"], "HOME": str(home.root.parent), "PALINURUS_HOME": str(home.root)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ran = await asyncio.create_subprocess_exec(sys.executable, "-c", CODE, env=env, **pipes)
    output, complaint = await asyncio.wait_for(ran.communicate(), PATIENCE)
    assert ran.returncode == 0, complaint.decode()
    assert bool(output.split()) is enabled


async def test_a_gateway_without_webhooks_has_no_route_for_them(home: Home) -> None:
    configure(home, hooks={"token": TOKEN})
    async with running(home) as served:
        sent = {"Authorization": BEARER, "Content_Type": "application/json"}
        assert (await request(served.port, "/hooks/wake", method="POST", body=b'{"text":"x"}', **sent)).status == 404
        assert "/hooks" not in (await request(served.port, "/openapi.json")).body.decode()
    async with hooks_gateway(home, {}) as hooked:
        assert "/hooks/{name}" in (await request(hooked.running.port, "/openapi.json")).json["paths"]
