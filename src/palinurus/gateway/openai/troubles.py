"""Errors in OpenAI's shape. Its clients make exceptions of the status, and sentences of the message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from palinurus.domain.errors import Failure, PalinurusError
from palinurus.domain.events import RunResult
from palinurus.gateway.door.guard import Refused
from palinurus.gateway.door.refusals import problem

Endpoint = Callable[[Request], Awaitable[Response]]


class Trouble(Exception):
    """A request that is not answered. `retry`: whether the same again may be answered; None: the status says it."""

    def __init__(
        self, status: int, message: str, *, code: str = "", param: str | None = None, retry: bool | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry = retry

    @property
    def shape(self) -> dict[str, Any]:
        kind = TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code or None}

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.shape})


TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Error(Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Failed(Struct, frozen=True):
    """The body of an answer that is none."""

    error: Error


# Why a model did not answer, as a client of OpenAI knows it. A key of ours that is refused is no fault of the client's.
FAILURES: dict[str, tuple[int, str]] = {
    Failure.RATE_LIMIT: (429, "rate_limit_exceeded"),
    Failure.BILLING: (429, "insufficient_quota"),
    Failure.OVERLOAD: (503, "overloaded"),
    Failure.CONTEXT_OVERFLOW: (400, "context_length_exceeded"),
    Failure.TIMEOUT: (504, "timeout"),
    Failure.MODEL_NOT_FOUND: (502, "model_not_found"),
    Failure.AUTH: (502, "upstream_auth"),
}


def of_result(result: RunResult) -> Trouble | None:
    """Why a run gave no answer; None when it gave one. A refusal is one, in OpenAI's eyes.

    What could be tried again was tried by the run, and its message stands in the transcript: the client is told not to
    say it again by itself.
    """
    if result.status == "ok" or result.error_kind == Failure.REFUSAL:
        return None
    if result.status == "aborted":
        return Trouble(503, f"the run was ended: {result.error or 'stopped'}", code="aborted", retry=False)
    status, code = FAILURES.get(result.error_kind, (502, result.error_kind) if result.error_kind else (500, "failed"))
    return Trouble(status, result.error or "the run failed", code=code, retry=False)


def answered(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its errors told in OpenAI's shape."""

    @wraps(endpoint)
    async def told(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (Trouble, Refused, PalinurusError) as error:
            return failure(error)

    return told


def failure(error: Trouble | Refused | PalinurusError, headers: dict[str, str] | None = None) -> Response:
    headers = dict(headers or {})
    if isinstance(error, Refused) and error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    trouble = error if isinstance(error, Trouble) else _of_error(error)
    if trouble.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if trouble.retry is not None:
        headers["x-should-retry"] = "true" if trouble.retry else "false"  # which OpenAI's clients obey
    return Response(trouble.body, trouble.status, headers, media_type="application/json")


def _of_error(error: Refused | PalinurusError) -> Trouble:
    status, told = problem(error)
    message = error.message if isinstance(error, Refused) else str(error)
    return Trouble(status, message, code=str(told["code"]).lower())
