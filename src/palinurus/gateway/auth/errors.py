"""Refused, and the shapes of errors: in a response frame, and as a problem of HTTP (RFC 9457)."""

from __future__ import annotations

from typing import Any

from palinurus.domain.errors import (
    BadRequest,
    ConfigError,
    HomeHeld,
    MissingScope,
    NotConfirmed,
    NotFound,
    NotOffered,
    PalinurusError,
    ProviderError,
    QueueFull,
    Stale,
    StorageError,
    UnknownOperation,
    WaitTimeout,
    WorkspaceError,
)
from palinurus.gateway.protocol import ErrorShape


class Refused(Exception):
    """A refused request or client, with its HTTP status and a code for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        retry_after: float | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.details = details


# The first match decides. HTTP status, code for programs, whether trying again may help.
SHAPES: tuple[tuple[type[PalinurusError], int, str, bool], ...] = (
    (UnknownOperation, 404, "UNKNOWN_METHOD", False),
    (Stale, 409, "INVALID_REQUEST", False),
    (BadRequest, 400, "INVALID_REQUEST", False),
    (MissingScope, 403, "FORBIDDEN", False),
    (NotOffered, 501, "UNAVAILABLE", False),
    (NotFound, 404, "NOT_FOUND", False),
    (ConfigError, 409, "INVALID_CONFIG", False),
    (QueueFull, 429, "QUEUE_FULL", True),
    (WaitTimeout, 504, "TIMEOUT", True),
    (WorkspaceError, 409, "WORKSPACE", False),
    (StorageError, 507, "STORAGE", True),
    (HomeHeld, 503, "UNAVAILABLE", True),
    (ProviderError, 502, "PROVIDER", True),
    (PalinurusError, 500, "FAILED", False),
)


# Errors that a program may have to distinguish within one code.
DETAILS: dict[type[PalinurusError], str] = {
    Stale: "STALE",
    NotConfirmed: "NOT_CONFIRMED",
    NotOffered: "NOT_IMPLEMENTED",
    MissingScope: "MISSING_SCOPE",
}


def _shape(error: PalinurusError) -> tuple[int, str, bool]:
    return next((status, code, again) for kind, status, code, again in SHAPES if isinstance(error, kind))


def error_shape(error: PalinurusError | Refused) -> ErrorShape:
    if isinstance(error, Refused):
        wait = None if error.retry_after is None else round(error.retry_after * 1000)
        return ErrorShape(error.code, error.message, error.details, retryable=wait is not None, retry_after_ms=wait)
    _, code, again = _shape(error)
    details = {"code": DETAILS.get(type(error), ""), "hint": error.hint}
    if isinstance(error, MissingScope):
        details["missingScope"] = f"operator.{error.scope}"
    return ErrorShape(code, error.message, {name: value for name, value in details.items() if value} or None, again)


def problem(error: PalinurusError | Refused) -> tuple[int, dict[str, Any]]:
    """Status and body."""
    if isinstance(error, Refused):
        return error.status, {"type": "about:blank", "title": error.message, "status": error.status, "code": error.code}
    status, code, _ = _shape(error)
    body = {"type": "about:blank", "title": error.message, "status": status, "code": code}
    return status, {**body, "detail": error.hint} if error.hint else body
