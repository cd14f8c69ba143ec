"""The one tree of errors.

    PalinurusError
      ConfigError           the config is invalid (file, line, path)
      WorkspaceError        a file of the workspace cannot be used
        OutsideWorkspace    a path that leads out of the workspace
      StorageError          the home cannot be read or written
        StorageFull         the disk is full
        StorageReadOnly     the home may only be read
        StorageDamaged      a database file is damaged
        HomeTaken           another process now writes to this home
        CommitUnknown       the database went away while it committed: it is stored, or nothing of it
      HomeHeld              another process holds the home and cannot be used
        HolderRefused       the holder answers, but for another config or workspace
        HolderLost          the holder ended during the operation; a retry may work
      UnknownOperation      there is no operation of that name
      BadRequest            the caller's arguments are invalid
        Stale               the state that the caller relies on has changed
        NotConfirmed        the operation needs confirmation
      MissingScope          the caller's credential lacks the scope
      NotOffered            this release does not support that
      PluginFailed          a part of a plugin failed
      NotFound              there is no such session, run, agent or file
      QueueFull             the queue of the lane is full
      WaitTimeout           the wait timed out; the work continues
      SandboxError          a command cannot run in the requested sandbox
      WebError              a page or a search failed
        AddressRefused      the web tools may not reach this address
      EmbedderError         texts could not be embedded
      BackendError          a memory backend does not serve
        BackendTimeout      it did not answer in time
      JobError              a job certainly did not happen
        JobFailed           a retry may work
        JobRefused          a retry cannot help
      ProviderError         the model call failed (see `kind`)
      RunFailed             a run has ended without a reply (see `kind`)

Every error is one sentence that says what and where, and a `hint` that says what to do next. An error crosses the
unix socket as its class name and its fields, and is the same error on the other side.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar


class PalinurusError(Exception):
    """Something went wrong that a person can do something about."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def fields(self) -> dict[str, Any]:
        """The fields from which `error_from_fields` rebuilds this error in another process."""
        return {"message": self.message, "hint": self.hint}


class ConfigError(PalinurusError):
    """The config is invalid."""

    exit_code = 2


class WorkspaceError(PalinurusError):
    """A file of the workspace cannot be used."""


class OutsideWorkspace(WorkspaceError):
    """The path leads out of the workspace."""


class StorageError(PalinurusError):
    """The home cannot be read or written."""


class StorageFull(StorageError):
    """The disk is full."""


class StorageReadOnly(StorageError):
    """The home may only be read."""


class StorageDamaged(StorageError):
    """A database file is damaged."""


class HomeTaken(StorageError):
    """Another process now writes to this home, so this process must stop writing."""


class CommitUnknown(StorageError):
    """The database went away while it committed, and cannot be asked: all of it is stored, or nothing."""


class HomeHeld(PalinurusError):
    """Another process holds the home and cannot be used."""


class HolderRefused(HomeHeld):
    """The holder answers, but for another config or workspace."""


class HolderLost(HomeHeld):
    """The holder ended during the operation; a retry may work."""


class UnknownOperation(PalinurusError):
    """There is no operation of that name."""


class BadRequest(PalinurusError):
    """The caller's arguments are invalid."""

    exit_code = 2


class Stale(BadRequest):
    """The state that the caller relies on has changed since it was read."""


class NotConfirmed(BadRequest):
    """The operation is possible but needs confirmation: the caller repeats it with `confirmed`."""


class MissingScope(PalinurusError):
    """The caller's credential lacks the scope for this."""

    def __init__(self, message: str, *, hint: str = "", scope: str = "") -> None:
        super().__init__(message, hint=hint)
        self.scope = scope


class NotOffered(PalinurusError):
    """This release does not support that."""


class PluginFailed(PalinurusError):
    """A part of a plugin failed."""


class NotFound(PalinurusError):
    """There is no such session, run, agent or file."""


class QueueFull(PalinurusError):
    """The queue of the lane is full."""


class WaitTimeout(PalinurusError):
    """The wait timed out; the work continues."""

    exit_code = 3


class SandboxError(PalinurusError):
    """A command cannot run in the requested sandbox."""


class WebError(PalinurusError):
    """A page could not be fetched or a search failed."""


class AddressRefused(WebError):
    """The web tools may not reach this address."""


class EmbedderError(PalinurusError):
    """Texts could not be embedded: search then uses keywords only and reports it.

    `lasting`: repeating it cannot help, such as without a key. `retry_after`: seconds, if the embedder has named them.
    """

    def __init__(
        self, message: str, *, hint: str = "", lasting: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.lasting = lasting
        self.retry_after = retry_after


class BackendError(PalinurusError):
    """A memory backend failed: the builtin engine answers instead."""


class BackendTimeout(BackendError):
    """It did not answer in time."""


class JobError(PalinurusError):
    """A job certainly did not happen."""


class JobFailed(JobError):
    """The job did not happen and may be retried, after `retry_after` seconds if known."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class JobRefused(JobError):
    """The job did not happen, and a retry cannot help."""


class Failure(StrEnum):
    """Why a model call failed. Failover decides by this value only."""

    AUTH = "auth"
    RATE_LIMIT = "rate_limit"
    OVERLOAD = "overload"
    CONTEXT_OVERFLOW = "context_overflow"
    BILLING = "billing"
    BAD_REQUEST = "bad_request"
    NETWORK = "network"
    TIMEOUT = "timeout"
    REFUSAL = "refusal"
    MODEL_NOT_FOUND = "model_not_found"
    MALFORMED = "malformed"


class ProviderError(PalinurusError):
    """The model call failed."""

    def __init__(
        self,
        message: str,
        *,
        kind: Failure,
        hint: str = "",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after

    def fields(self) -> dict[str, Any]:
        return {**super().fields(), "kind": str(self.kind), "status": self.status, "retry_after": self.retry_after}


class RunFailed(PalinurusError):
    """A run has ended without a reply. `kind` is a Failure, `aborted` for one that was stopped, or empty."""

    def __init__(self, message: str, *, hint: str = "", kind: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


def error_from_fields(name: str, fields: dict[str, Any]) -> PalinurusError:
    """Rebuilds an error that another process raised. An unknown class becomes a PalinurusError."""
    known = {cls.__name__: cls for cls in _tree(PalinurusError)}
    if name == "ProviderError":
        return ProviderError(**{**fields, "kind": Failure(fields["kind"])})
    return known.get(name, PalinurusError)(fields.get("message", name), hint=fields.get("hint", ""))


def _tree(cls: type[PalinurusError]) -> list[type[PalinurusError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _tree(child))]
