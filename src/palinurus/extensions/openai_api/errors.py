"""Errors in the shape of OpenAI and of Anthropic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.responses import Response

from palinurus.domain.errors import Failure, PalinurusError
from palinurus.domain.events import RunResult
from palinurus.gateway.protocol import Refused, problem


class ErrorDetails(Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(Struct, frozen=True):
    """The body of an error response."""

    error: ErrorDetails


class MessagesError(Struct, frozen=True):
    type: str
    message: str


class MessagesErrorBody(Struct, frozen=True):
    """The body of an error response in Anthropic's shape."""

    error: MessagesError
    type: Literal["error"] = "error"


class ApiError(Exception):
    """A failed request. `retry`: whether the client should try the same again; None: as the status says."""

    def __init__(
        self, status: int, message: str, *, code: str = "", param: str | None = None, retry: bool | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry = retry


TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
ANTHROPIC_TYPES = {**TYPES, 404: "not_found_error", 413: "request_too_large", 503: "overloaded_error"}


def openai_body(error: ApiError) -> bytes:
    kind = TYPES.get(error.status) or ("server_error" if error.status >= 500 else "invalid_request_error")
    return msgspec.json.encode(ErrorBody(ErrorDetails(error.message, kind, error.param, error.code or None)))


def anthropic_error(error: ApiError) -> MessagesError:
    usual = "api_error" if error.status >= 500 else "invalid_request_error"
    return MessagesError(ANTHROPIC_TYPES.get(error.status, usual), error.message)


def anthropic_body(error: ApiError) -> bytes:
    return msgspec.json.encode(MessagesErrorBody(anthropic_error(error)))


# Failures of the model in OpenAI's terms. A refused key of ours is not the client's fault.
FAILURES: dict[str, tuple[int, str]] = {
    Failure.RATE_LIMIT: (429, "rate_limit_exceeded"),
    Failure.BILLING: (429, "insufficient_quota"),
    Failure.OVERLOAD: (503, "overloaded"),
    Failure.CONTEXT_OVERFLOW: (400, "context_length_exceeded"),
    Failure.TIMEOUT: (504, "timeout"),
    Failure.MODEL_NOT_FOUND: (502, "model_not_found"),
    Failure.AUTH: (502, "upstream_auth"),
}


def error_of_result(result: RunResult) -> ApiError | None:
    """The error of a run without an answer, else None. For OpenAI a refusal is an answer.

    The run has already retried what can be retried, and the message is in the transcript, so `retry` is False.
    """
    if result.status == "ok" or result.error_kind == Failure.REFUSAL:
        return None
    if result.status == "aborted":
        return ApiError(503, f"the run was stopped: {result.error or 'no reason given'}", code="aborted", retry=False)
    status, code = FAILURES.get(result.error_kind, (502, result.error_kind) if result.error_kind else (500, "failed"))
    return ApiError(status, result.error or "the run failed", code=code, retry=False)


def error_response(
    error: ApiError | Refused | PalinurusError,
    headers: dict[str, str] | None = None,
    body: Callable[[ApiError], bytes] = openai_body,
) -> Response:
    headers = dict(headers or {})
    if isinstance(error, Refused) and error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if not isinstance(error, ApiError):
        shape = problem(error)
        error = ApiError(shape.status, str(error), code=shape.code.lower())
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry is not None:
        headers["x-should-retry"] = "true" if error.retry else "false"  # OpenAI's clients obey it
    return Response(body(error), error.status, headers, media_type="application/json")
