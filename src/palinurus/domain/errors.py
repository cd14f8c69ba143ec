"""The one tree of errors.

    PalinurusError
      ConfigError           the config cannot be used as it is (file, line, path)
      WorkspaceError        a file of the workspace cannot be used
        OutsideWorkspace    a path that leads out of the workspace
      StorageError          the home cannot be read or written
        StorageFull         the disk is full
        StorageReadOnly     the home may only be read
        StorageDamaged      a database file is not what it should be
        HomeTaken           another process writes this home now
      HomeHeld              another process holds the home and cannot be used
        HolderRefused       the holder answers, but for another config or workspace
        HolderLost          the holder went away in mid-operation; asking again may work
      UnknownOperation      nobody answers to that operation's name
      BadRequest            the caller's arguments make no sense
        Stale               what the caller goes by has changed since it looked
        NotConfirmed        it can be done, and needs a second yes
      NotOffered            this release cannot do that yet
      NotFound              there is no such session, run, agent or file
      QueueFull             the lane already holds as many messages as it may
      WaitTimeout           the wait ended before the work did; the work goes on
      SandboxError          a command cannot be run with the walls that were asked for
      WebError              a page or a search could not be had
        AddressRefused      an address that the web tools may not reach
      EmbedderError         texts could not be turned into vectors
      CarryError            a parcel was not carried to its recipient
        CarryFailed         it has certainly not arrived and may be tried again
        CarryRefused        it has certainly not arrived and trying again is of no use
      ProviderError         the model did not answer (see `kind`)

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
        """What `from_fields` needs to make the same error in another process."""
        return {"message": self.message, "hint": self.hint}


class ConfigError(PalinurusError):
    """The config cannot be used as it is."""

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
    """A database file is not what it should be."""


class HomeTaken(StorageError):
    """Another process writes this home now: this one must not."""


class HomeHeld(PalinurusError):
    """Another process holds the home and cannot be used."""


class HolderRefused(HomeHeld):
    """The holder answers, but for another config or workspace."""


class HolderLost(HomeHeld):
    """The holder went away in mid-operation; asking again may work."""


class UnknownOperation(PalinurusError):
    """Nobody answers to that operation's name."""


class BadRequest(PalinurusError):
    """The caller's arguments make no sense."""

    exit_code = 2


class Stale(BadRequest):
    """What the caller goes by has changed since it looked."""


class NotConfirmed(BadRequest):
    """It can be done, and needs a second yes: whoever asks says `confirmed`."""


class NotOffered(PalinurusError):
    """This release cannot do that yet."""


class NotFound(PalinurusError):
    """There is no such session, run, agent or file."""


class QueueFull(PalinurusError):
    """The lane already holds as many messages as it may."""


class WaitTimeout(PalinurusError):
    """The wait ended before the work did; the work goes on."""

    exit_code = 3


class SandboxError(PalinurusError):
    """A command cannot be run with the walls that were asked for."""


class WebError(PalinurusError):
    """A page or a search could not be had."""


class AddressRefused(WebError):
    """An address that the web tools may not reach."""


class EmbedderError(PalinurusError):
    """Texts could not be turned into vectors: the answer is by words alone, and says so."""


class CarryError(PalinurusError):
    """A parcel was not carried to its recipient, for certain."""


class CarryFailed(CarryError):
    """Not this time; another time it may be. `retry_after` is in seconds, where the network has named a time."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class CarryRefused(CarryError):
    """Not like this, however often it is tried."""


class Failure(StrEnum):
    """Why a model did not answer. Failover decides on this and on nothing else."""

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
    """The model did not answer."""

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


def error_from_fields(name: str, fields: dict[str, Any]) -> PalinurusError:
    """The error that another process raised. An unknown class arrives as the root of the tree."""
    known = {cls.__name__: cls for cls in _tree(PalinurusError)}
    if name == "ProviderError":
        return ProviderError(**{**fields, "kind": Failure(fields["kind"])})
    return known.get(name, PalinurusError)(fields.get("message", name), hint=fields.get("hint", ""))


def _tree(cls: type[PalinurusError]) -> list[type[PalinurusError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _tree(child))]
