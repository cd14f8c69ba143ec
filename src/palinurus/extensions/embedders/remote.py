"""An embedding service behind a base URL: batches, limits, typed failures, and vectors that are checked.

Texts are repeated a few times where the service is busy; a question is asked once, because its search does not wait.
While a service has said when it may be asked again, it is not asked. Redirects are not followed, so the key stays with
the address for which the config has it.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from palinurus.config.secrets import origin_of
from palinurus.domain.errors import EmbedderError, Failure, ProviderError
from palinurus.extensions.embedders.vendors import VENDORS, Body, EmbeddingRequest, Vendor
from palinurus.memory.embedder import Embedder, EmbedderPlace, Space
from palinurus.memory.embedders.embedded import AGAIN
from palinurus.providers.provider import LOOPBACK_HOSTS
from palinurus.providers.wires.failures import Call, failure_of, failure_of_exception
from palinurus.providers.wires.http import CONNECT_SECONDS, MAX_ERROR_BYTES, checked_address
from palinurus.text.tokens import estimate_tokens

if TYPE_CHECKING:
    import httpx2

MOST_CHARACTERS = 6_000  # of a text; further ones are not read
MAX_ANSWER = 64 * 1024 * 1024
SECONDS = 60.0  # without a byte
ATTEMPTS = 4  # for texts
LONGEST_WAIT = 20.0  # a longer one is the caller's
REPEATABLE = (Failure.RATE_LIMIT, Failure.OVERLOAD, Failure.NETWORK, Failure.TIMEOUT)
HINTS = {
    Failure.AUTH: "check memorySearch.remote.apiKey, or the provider's stored key",
    Failure.MODEL_NOT_FOUND: "check memorySearch.model",
    Failure.BILLING: "check balance and plan at the provider",
}
NOTHING = "-"  # stands for a blank text, which services refuse

Pause = Callable[[float], Awaitable[None]]


def open_remote(place: EmbedderPlace) -> Embedder:
    """Implements OpenEmbedder."""
    return RemoteEmbedder(place, VENDORS.get(place.provider, VENDORS["openai-compatible"]))


class RemoteEmbedder:
    """Implements Embedder."""

    def __init__(
        self, place: EmbedderPlace, vendor: Vendor, *, seconds: float = SECONDS, pause: Pause = asyncio.sleep
    ) -> None:
        """Raises EmbedderError without an address or a model."""
        self.place = place
        self.vendor = vendor
        self._seconds = seconds
        self._pause = pause
        usual = place.address or vendor.address
        self.address = ((place.options.base_url or "").strip() or usual).rstrip("/")
        if vendor.name == "ollama":
            self.address = self.address.removesuffix("/v1")  # where it speaks OpenAI's protocol
        self.is_usual = origin_of(self.address) == origin_of(usual)
        if not self.address:
            raise EmbedderError(
                f"{place.provider} has no address", hint="set memorySearch.remote.baseUrl", lasting=True
            )
        self._url = checked_address(place.provider, self.address)
        self.model = place.model or vendor.model
        if not self.model:
            raise EmbedderError(f"{place.provider} needs a model", hint="set memorySearch.model", lasting=True)
        size = place.options.dimensions or vendor.dimensions.get(self.model, 0)
        self._space = Space(place.provider, self.model, size, self._preparation())
        self._client: httpx2.AsyncClient | None = None
        self._rests_until = 0
        self._rest_reason = ""

    @property
    def space(self) -> Space:
        return self._space

    @property
    def takes_batches(self) -> bool:
        return self.vendor.batches and self.place.options.batch.enabled

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        made: list[bytes] = []
        for part in self._portions([_clean(text) for text in texts]):
            made += await self._patiently(EmbeddingRequest(self.model, part, False, self.place.options.dimensions))
        return made

    async def embed_query(self, text: str) -> bytes:
        asked = EmbeddingRequest(self.model, (_clean(text),), True, self.place.options.dimensions)
        return (await self._ask(asked))[0]

    def body_of(self, text: str) -> Body:
        """Of the request that embeds it alone."""
        return self.vendor.body(EmbeddingRequest(self.model, (_clean(text),), False, self.place.options.dimensions))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _preparation(self) -> str:
        """Another address may serve another model under the same name."""
        where = "" if self.is_usual else f",at:{hashlib.sha256(self.address.encode()).hexdigest()[:8]}"
        return f"unit{',search' if self.vendor.asymmetric else ''}{where}"

    def _portions(self, texts: Sequence[str]) -> Iterator[tuple[str, ...]]:
        part: list[str] = []
        size = 0
        for text in texts:
            if part and (len(part) == self.vendor.most_texts or size + len(text) > self.vendor.most_characters):
                yield tuple(part)
                part, size = [], 0
            part.append(text)
            size += len(text)
        if part:
            yield tuple(part)

    async def _patiently(self, asked: EmbeddingRequest) -> list[bytes]:
        for attempt in range(ATTEMPTS):
            try:
                return await self._ask(asked)
            except EmbedderError as error:
                wait = error.retry_after if error.retry_after is not None else 2.0**attempt
                if error.lasting or attempt + 1 == ATTEMPTS or wait > LONGEST_WAIT:
                    raise
            await self._pause(wait)
        raise AssertionError("a last attempt returns or raises")

    async def _ask(self, asked: EmbeddingRequest) -> list[bytes]:
        now = self.place.clock.now_ms()
        if now < self._rests_until:
            raise EmbedderError(self._rest_reason, hint=AGAIN, retry_after=(self._rests_until - now) / 1000)
        await self.place.reserve(self.model, sum(map(estimate_tokens, asked.texts)))
        path = self.vendor.path.format(model=self.model)
        answer = await self.send("POST", path, msgspec.json.encode(self.vendor.body(asked)))
        return await asyncio.to_thread(self._read, answer, len(asked.texts))

    async def send(
        self, method: str, path: str, body: bytes, *, content_type: str = "application/json", most: int = MAX_ANSWER
    ) -> bytes:
        """The answer to one request. Raises EmbedderError, without a key in it."""
        answer = bytearray()
        async with self.streamed(method, path, body, content_type) as parts:
            async for data in parts:
                answer += data
                if len(answer) > most:
                    raise self._odd(f"an answer of more than {most:,} bytes")
        return bytes(answer)

    @asynccontextmanager
    async def streamed(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json"
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The answer as it comes. Raises EmbedderError, without a key in it."""
        import httpx2

        headers = self._headers() | {"Content-Type": content_type}
        where = f"{self._url.scheme}://{self._url.netloc.rpartition('@')[2]}"
        secrets = [value.removeprefix("Bearer ") for name, value in headers.items() if name != "Content-Type"]
        call = Call(f"{self.place.provider}/{self.model}", where, self._key(), self.place.clock.now_ms())
        try:
            client, url = self._opened(), f"{self.address}{path}"
            async with client.stream(method, url, content=body, headers=headers) as response:
                if response.status_code != 200:
                    text = (await _beginning(response.aiter_bytes())).decode("utf-8", "replace")
                    raise failure_of(response.status_code, _without(text, secrets), response.headers, call)
                yield response.aiter_bytes()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._error(failure_of_exception(error, call, began=False)) from None
        except ProviderError as error:
            raise self._error(error) from None

    def _read(self, answer: bytes, wanted: int) -> list[bytes]:
        """Vectors of length one, in the order of their texts."""
        try:
            found = dict(self.vendor.read(answer))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._odd("no vectors that can be read") from None
        if sorted(found) != list(range(wanted)):
            raise self._odd(f"{len(found)} vectors for {wanted} texts")
        return [self.unit(found[number]) for number in range(wanted)]

    def unit(self, numbers: Sequence[float]) -> bytes:
        """A vector, checked; the first one tells the dimensions where nobody has said them."""
        size, length = len(numbers), math.hypot(*numbers)
        if not self._space.dimensions and size:
            self._space = msgspec.structs.replace(self._space, dimensions=size)
        if size != self._space.dimensions:
            raise self._odd(f"a vector of {size} dimensions instead of {self._space.dimensions}")
        if not 0 < length < math.inf:
            raise self._odd("a vector without a direction")
        return struct.pack(f"<{size}f", *[number / length for number in numbers])

    def _odd(self, what: str) -> EmbedderError:
        return EmbedderError(f"{self.place.provider}/{self.model} gave {what}", hint="none of them was kept")

    def _error(self, error: ProviderError) -> EmbedderError:
        wait = error.retry_after
        if wait and error.kind in (Failure.RATE_LIMIT, Failure.OVERLOAD):
            self._rests_until = self.place.clock.now_ms() + round(wait * 1000)
            self._rest_reason = error.message
        hint = HINTS.get(error.kind, AGAIN)
        lasting = error.kind not in REPEATABLE
        return EmbedderError(error.message, hint=hint, lasting=lasting, retry_after=wait)

    def _key(self) -> str:
        options = self.place.options
        own = self.place.secret(options.api_key) if options.api_key is not None else None
        stored = self.place.stored_key() if self.is_usual and options.api_key is None else ""
        return (own or stored).strip()

    def _headers(self) -> dict[str, str]:
        key = self._key()
        if not (key.isascii() and (key.isprintable() or not key)):
            raise EmbedderError(f"the key of {self.place.provider} contains characters that no key has", lasting=True)
        if not key and self.vendor.keys and self.is_usual and self._url.hostname not in LOOPBACK_HOSTS:
            said = f"{self.place.provider} has no key"
            hint = f"`pal models auth add {self.vendor.keys}` stores one, or set memorySearch.remote.apiKey"
            raise EmbedderError(said, hint=hint, lasting=True)
        name, before = self.vendor.key_header
        more = {name: self.place.secret(value) for name, value in self.place.options.headers.items()}
        return ({name: before + key} if key else {}) | {name: value for name, value in more.items() if value}

    def _opened(self) -> httpx2.AsyncClient:
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(self._seconds, connect=CONNECT_SECONDS),
                trust_env=self._url.hostname not in LOOPBACK_HOSTS,  # a proxy cannot reach our loopback
                verify=self._url.scheme != "http",
            )
        return self._client


async def _beginning(parts: AsyncIterator[bytes]) -> bytes:
    """As much as an error may be long."""
    begun = bytearray()
    async for data in parts:
        begun += data
        if len(begun) > MAX_ERROR_BYTES:
            break
    return bytes(begun[:MAX_ERROR_BYTES])


def _without(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if len(secret) >= 6:
            text = text.replace(secret, "[key]")
    return text


def _clean(text: str) -> str:
    """As it can be sent: without lone surrogates and zero bytes."""
    whole = text[:MOST_CHARACTERS].encode("utf-8", "replace").decode().replace("\0", " ")
    return whole if whole.strip() else NOTHING
