"""The embedder protocol: texts to vectors. Each vector carries the id of its space, because only vectors of one model
can be compared.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import EmbedderError, PalinurusError, StorageError
from palinurus.memory.answer import EmbedderFallback

if TYPE_CHECKING:
    from palinurus.config.section import Secret
    from palinurus.memory.settings import EmbedderOptions

log = logging.getLogger(__name__)

TOKENS = "tokens:"  # begins the part of a space's preparation that says which codes its words have


class Space(Struct, frozen=True):
    """Vectors of one space can be compared with each other, and with no others (promise 12)."""

    provider: str
    model: str
    dimensions: int
    preparation: str = ""  # how texts and vectors are normalised, and whether words have codes (`has_tokens`)

    @property
    def id(self) -> str:
        return f"{self.provider}/{self.model}/{self.dimensions}/{self.preparation}"

    @property
    def has_tokens(self) -> bool:
        """Whether token states stand behind each vector (late.py)."""
        return f",{TOKENS}" in self.preparation

    @classmethod
    def read(cls, id_: str) -> Space:
        """The space with this id. The name of a model may hold slashes."""
        provider, _, rest = id_.partition("/")
        model, dimensions, preparation = rest.rsplit("/", 2)
        return cls(provider, model, int(dimensions), preparation)

    def fits(self, other: Space) -> bool:
        """Whether they are the same, where one may not know its dimensions yet."""
        known = self.dimensions and other.dimensions
        mine, its = ((each.provider, each.model, each.preparation) for each in (self, other))
        return mine == its and (self.dimensions == other.dimensions or not known)


class Embedder(Protocol):
    """Implemented by the embedded model and by remote ones.

    Vectors are little-endian float32, of length one, `space.dimensions` of them; token states may follow them. Failures
    are EmbedderErrors; the implementation has its own time limit. Calls may overlap. The dimensions may be 0 until the
    first vector has been made.
    """

    @property
    def space(self) -> Space: ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text, in order. At most a few hundred texts at once."""

    async def embed_query(self, text: str) -> bytes:
        """The vector of a question, with priority over other work."""

    async def close(self) -> None: ...


@runtime_checkable
class BatchEmbedder(Embedder, Protocol):
    """One whose service also embeds large numbers of texts in its own time, for less."""

    takes_batches: bool


class EmbedderPlace(Struct, frozen=True):
    """What an embedder is opened with."""

    provider: str
    model: str  # empty: its usual one
    agent: str
    options: EmbedderOptions
    address: str  # of the provider of models of that name in the config; empty: none is set
    stored_key: Callable[[], str]  # of this provider, from the config, the credentials file or the environment
    secret: Callable[[Secret], str | None]  # the value of one in the config
    reserve: Callable[[str, int], Awaitable[None]]  # before so many tokens of a model are sent; raises EmbedderError
    clock: Clock


OpenEmbedder = Callable[[EmbedderPlace], Embedder]
"""What `App.embedder` registers. Does not block, and sends nothing. Raises EmbedderError when it cannot work."""


class UnusableEmbedder(Struct, frozen=True):
    """Implements Embedder for one that could not be opened: it says why."""

    space: Space
    error: EmbedderError

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        raise self.error

    async def embed_query(self, text: str) -> bytes:
        raise self.error

    async def close(self) -> None: ...


PATIENCE = 2  # failures in a row after which the next embedder serves
RETURN_SECONDS = 900.0  # after that the first is tried again


class EmbedderChain:
    """An agent's embedders in their order. The first makes the vectors; while it does not work, the next does.

    An index is searched in one space only (promise 12): whoever makes vectors fills its own space, which takes over
    when it is complete, and until then questions are embedded by the one whose space is searched.
    """

    def __init__(self, members: Sequence[Embedder], older: Callable[[Space], Embedder | None] = lambda _: None) -> None:
        """`older`: the embedder of a space that an earlier config has filled, if it may still be asked."""
        self._members = tuple(members)
        self._older = older
        self._at = self._failures = 0
        self._reason = ""

    @property
    def serving(self) -> Embedder:
        """The one that makes vectors."""
        return self._members[self._at]

    @property
    def has_next(self) -> bool:
        return self._at + 1 < len(self._members)

    @property
    def fallback(self) -> EmbedderFallback | None:
        """None while the first one works."""
        return EmbedderFallback(self._members[0].space.provider, self._reason) if self._at else None

    @property
    def kept(self) -> tuple[Space, ...]:
        """Spaces whose vectors stay while another is searched: those of embedders that will be tried again."""
        return tuple(each.space for each in self._members[: self._at])

    def of_space(self, space_id: str) -> Embedder | None:
        """Who embeds questions for an index that is searched in this space; None: nobody may."""
        if not space_id:
            return self.serving
        space = Space.read(space_id)
        return self.member_of(space) or self._older(space)

    def member_of(self, space: Space) -> Embedder | None:
        return next((each for each in self._members if each.space.fits(space)), None)

    def failed(self, embedder: Embedder, error: EmbedderError) -> bool:
        """Notes a failure. True: another one serves from now on."""
        if embedder is not self.serving:
            return False
        self._failures += 1
        if not self.has_next or not (error.lasting or self._failures >= PATIENCE):
            return False
        self._at, self._failures, self._reason = self._at + 1, 0, self._reason or error.message
        log.warning("%s embeds from now on: %s", self.serving.space.provider, error)
        return True

    def worked(self, embedder: Embedder) -> None:
        if embedder is self.serving:
            self._failures = 0

    async def try_first(self) -> None:
        """Goes back to the first one if it works again."""
        if self._at:
            try:
                async with asyncio.timeout(RETURN_SECONDS):
                    with embedder_errors(self._members[0]):
                        await self._members[0].embed_query("Is the embedder back?")
            except (EmbedderError, StorageError, TimeoutError):
                return
            self._at, self._reason = 0, ""


@contextmanager
def embedder_errors(embedder: Embedder) -> Iterator[None]:
    """Makes what an embedder raises EmbedderErrors: it may be code of a plugin, or lack a secret of the config."""
    try:
        yield
    except (EmbedderError, StorageError, TimeoutError):
        raise
    except PalinurusError as error:
        raise EmbedderError(error.message, hint=error.hint) from error
    except Exception as error:
        provider = embedder.space.provider
        log.warning("the embedder %s failed", provider, exc_info=error)
        raise EmbedderError(f"{provider} failed: {type(error).__name__}: {error}") from error


_SLACK = 1e-3


def check_vectors(space: Space, vectors: Sequence[bytes], wanted: int) -> None:
    """Raises EmbedderError unless the number of vectors, their dimensions and their length of one are right."""
    who = f"the embedder {space.model}"
    if len(vectors) != wanted:
        raise EmbedderError(f"{who} gave {len(vectors)} vectors for {wanted} texts", hint=_HINT)
    floats = struct.Struct(f"<{space.dimensions}f")
    for vector in vectors:
        if len(vector) != floats.size and not (space.has_tokens and len(vector) > floats.size):
            raise EmbedderError(
                f"{who} gave a vector of {len(vector) / 4:g} dimensions instead of {space.dimensions}", hint=_HINT
            )
        length = math.hypot(*floats.unpack_from(vector))
        if not abs(length - 1) < _SLACK:  # so that NaN is refused too
            raise EmbedderError(f"{who} gave a vector of length {length:g} instead of 1", hint=_HINT)


_HINT = "none of them was kept"
