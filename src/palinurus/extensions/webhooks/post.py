"""Posts JSON to other programs, by a job that is repeated until it has arrived.

Addresses are checked as those of web_fetch are: nothing private is reached unless tools.web.fetch.allowPrivate
names it. Redirects are not followed. The job holds the place of a token in the config and never the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from palinurus.config.section import Secret, dig
from palinurus.domain.errors import AddressRefused, JobFailed, JobRefused, WebError
from palinurus.operations.services import Services
from palinurus.storage.jobs import Job, JobKind, RetryPolicy
from palinurus.tools.settings import FetchSettings
from palinurus.tools.web.client import Client, HttpReply
from palinurus.tools.web.guard import AddressGuard, parse_address

POST = "webhooks.post"
SECONDS = 30.0
MOST_ANSWER = 64 * 1024  # bytes; the answer is not read
AGAIN = (408, 425, 429)  # besides 5xx: statuses that may pass


class WebhookPost(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The payload of the job."""

    url: str
    body: Raw
    token_at: str = ""  # where the config has the bearer token: cron.webhookToken


async def post_webhook(services: Services, url: str, body: Any, idempotency_key: str, *, token_at: str = "") -> Job:
    """Has `body` posted as JSON. When this returns, the job is stored; the same key again returns the same job.

    Raises AddressRefused for what is not a web address, and QueueFull.
    """
    target = parse_address(url)
    text = services.jobs.redact(msgspec.json.encode(body).decode())
    payload = WebhookPost(url, Raw(text.encode()), token_at)
    return await services.jobs.add(POST, payload, idempotency_key, lane=target.authority)


async def send_post(services: Services, post: WebhookPost, job: Job) -> str:
    """The handler of the job; returns the status of the answer. An error after the body was sent leaves the outcome
    unknown: it is repeated under the same Idempotency-Key, and shown as ambiguous if that does not help."""
    body, is_sent = bytes(post.body), False

    async def content() -> AsyncIterator[bytes]:
        nonlocal is_sent
        is_sent = True
        yield body

    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    headers["Idempotency-Key"] = job.idempotency_key
    if post.token_at:
        headers["Authorization"] = f"Bearer {_token(services, post.token_at)}"
    client = _client(services.config.section(FetchSettings).allow_private)
    try:
        target = parse_address(post.url)
        async with (
            asyncio.timeout(SECONDS),
            client.request("POST", target, headers, most=MOST_ANSWER, content=content()) as answer,
        ):
            return _outcome(answer)
    except AddressRefused as error:
        raise JobRefused(str(error)) from None
    except (WebError, TimeoutError) as error:
        if is_sent:
            raise
        raise JobFailed(str(error) or f"{target.host} did not answer within {SECONDS:g} s") from None


def _token(services: Services, place: str) -> str:
    said = dig(services.config.data, place.split("."))
    try:
        token = services.secret(msgspec.convert(said, Secret | None))
    except msgspec.ValidationError:
        raise JobRefused(f"{place} is not a secret") from None
    if not token:
        raise JobRefused(f"{place} names a secret that does not exist")
    return token


def _outcome(answer: HttpReply) -> str:
    """Raises JobFailed and JobRefused."""
    status = answer.status
    if 200 <= status < 300:
        return f"HTTP {status}"
    if status in AGAIN or status >= 500:
        after = answer.header("retry-after")
        raise JobFailed(f"the server answered HTTP {status}", retry_after=float(after) if after.isdecimal() else None)
    why = "; redirects are not followed" if 300 <= status < 400 else ""
    raise JobRefused(f"the server answered HTTP {status}{why}")


@lru_cache(maxsize=4)
def _client(allow_private: tuple[str, ...]) -> Client:
    return Client(AddressGuard(allow_private))


POST_KIND = JobKind(POST, WebhookPost, send_post, on_crash="retry", retry=RetryPolicy(first_ms=5_000))
