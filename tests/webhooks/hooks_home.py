"""A gateway with webhooks on a port of loopback, a scripted model behind it, and senders that call it."""

from __future__ import annotations

import hmac
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.domain.events import RunResult
from support.wire import Otherwise, Says, WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))
from serving import PATIENCE, Answer, Running, configure, request, running

TOKEN = "a-hook-token-that-is-long"
SECRET = "a-shared-secret-that-is-long"
BEARER = f"Bearer {TOKEN}"
ANSWER = Says("aye")
SIGNED = {"id": "signed", "messageTemplate": "{{text}}", "signature": {"secret": SECRET}}


class HooksGateway(Struct, frozen=True):
    """A running gateway and what its model was asked."""

    running: Running
    model: WireServer

    async def post(self, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Answer:
        sent = json.dumps(body).encode() if raw is None else raw
        said = {"Content_Type": "application/json", "Authorization": BEARER} | headers
        said = {name: value for name, value in said.items() if value}
        return await request(self.running.port, path, method="POST", body=sent, **said)

    async def signed(self, body: Any, *, at: float | None = None, secret: str = SECRET, **headers: str) -> Answer:
        sent = json.dumps(body).encode()
        stamp = str(int(time.time() if at is None else at))
        return await self.post(
            "/hooks/signed",
            raw=sent,
            **(
                {"Authorization": "", "X_Palinurus_Signature": f"t={stamp},v1={sign(f'{stamp}.', sent, secret)}"}
                | headers
            ),
        )

    async def result(self, answer: Answer) -> RunResult:
        assert answer.status == 202, answer
        run = await self.running.runtime.services.dispatcher.find(answer.json["runId"])
        return await run.wait(PATIENCE)


def sign(prefix: str, body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), prefix.encode() + body, "sha256").hexdigest()


@asynccontextmanager
async def hooks_gateway(
    home: Home,
    hooks: dict[str, Any],
    *,
    otherwise: Otherwise = ANSWER,
    env: dict[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[HooksGateway]:
    async with WireServer(otherwise=otherwise) as model:
        provider = {"baseUrl": model.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
        known = json.loads(home.config_path.read_text())["agents"]["defaults"]
        agents = {"defaults": known | {"model": "mine/test"}}
        configure(
            home,
            **({"agents": agents, "models": {"providers": {"mine": provider}}} | more),
            hooks={"enabled": True, "token": TOKEN} | hooks,
        )
        async with running(home, env) as served:
            yield HooksGateway(served, model)
