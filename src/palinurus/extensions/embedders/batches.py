"""OpenAI's Batch API: the vectors of a large index for half the price, within a day.

A durable job is one batch. It uploads the missing texts, looks at the batch until that has ended, and puts the vectors
into the index as they are read, each by its text's digest, so their order does not matter and those of texts that are
gone meanwhile are dropped. The id of the batch is kept with the job; a batch whose id was lost with the process is
found again, because it carries the job's id. What a batch did not make is made by the next one, or directly.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import struct
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from palinurus.domain.errors import EmbedderError, JobFailed, JobRefused
from palinurus.extensions.embedders.remote import RemoteEmbedder
from palinurus.memory.document import MissingVector
from palinurus.memory.memory import Memory
from palinurus.operations.services import Services
from palinurus.runtime.memory import BATCH_JOB, BatchOrder
from palinurus.storage.jobs import Job, JobKind, RetryPolicy
from palinurus.text.tokens import estimate_tokens

T = TypeVar("T")
MOST_TEXTS = 40_000  # OpenAI takes 50,000
MOST_BYTES = 100 * 2**20  # and 200 MB
GROUP = 256  # vectors that are stored at once
MOST_LINE = 2**20
TOGETHER = 100  # batches that are looked through for one of ours
OWNER = "palinurus"  # the key in a batch's metadata under which its job stands
log = logging.getLogger(__name__)


class BatchErrors(Struct, frozen=True):
    class Each(Struct, frozen=True):
        message: str | None = None

    data: tuple[Each, ...] | None = None


class BatchCounts(Struct, frozen=True):
    total: int = 0
    completed: int = 0


class EmbeddingBatch(Struct, frozen=True):
    """As the service describes it."""

    id: str
    status: str
    input_file_id: str = ""
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: BatchErrors | None = None
    request_counts: BatchCounts | None = None
    metadata: dict[str, str] | None = None

    @property
    def why(self) -> str:
        """Why nothing came of it."""
        told = (self.errors and self.errors.data) or ()
        return "; ".join(each.message for each in told if each.message) or f"the batch is {self.status}"


class BatchList(Struct, frozen=True):
    data: tuple[EmbeddingBatch, ...]


class UploadedFile(Struct, frozen=True):
    id: str


class _Vector(Struct, frozen=True):
    embedding: list[float] | str


class _Body(Struct, frozen=True):
    data: tuple[_Vector, ...] = ()


class _Response(Struct, frozen=True):
    body: _Body = _Body()  # of a refusal there are no data


class _Line(Struct, frozen=True):
    custom_id: str
    response: _Response | None = None


class BatchProgress(Struct, frozen=True):
    """What the job keeps."""

    batch: str = ""
    looked_at: int = 0
    reserved: bool = False  # its tokens are booked
    file: str = ""  # its texts are uploaded


class BatchRun(Struct, frozen=True):
    """One attempt of a job. Failures of the service are EmbedderErrors."""

    services: Services
    memory: Memory
    embedder: RemoteEmbedder
    order: BatchOrder
    job: Job
    unusable: list[str] = field(default_factory=list)  # why vectors were left out

    async def advance(self) -> str:
        """What the batch has made, when it has ended. Raises JobFailed while it has not."""
        options, now = self.embedder.place.options.batch, self.services.clock.now_ms()
        before = msgspec.json.decode(self.job.outcome, type=BatchProgress) if self.job.outcome else BatchProgress()
        wait = before.looked_at + round(options.poll_seconds * 1000) - now
        if 0 < wait <= options.poll_seconds * 1000:
            raise JobFailed(self.job.trouble or "the batch is under way", retry_after=wait / 1000)
        batch = await (self._look(before.batch) if before.batch else self._submit(before))
        await self._note(BatchProgress(batch.id, now))
        if batch.status in ("completed", "expired", "cancelled", "failed"):
            return await self._collect(batch)
        if now - self.job.added_at > options.timeout_minutes * 60_000:
            await self._asked("POST", f"/batches/{batch.id}/cancel", EmbeddingBatch)
            await self._remove(batch.input_file_id)
            raise JobRefused(f"the batch {batch.id} took longer than {options.timeout_minutes:g} minutes")
        counts = batch.request_counts or BatchCounts()
        said = f"the batch {batch.id} is {batch.status}: {counts.completed:,} of {counts.total:,}"
        raise JobFailed(said, retry_after=options.poll_seconds)

    async def _submit(self, before: BatchProgress) -> EmbeddingBatch:
        if self.job.attempts > 1:
            for batch in (await self._asked("GET", f"/batches?limit={TOGETHER}", BatchList)).data:
                if (batch.metadata or {}).get(OWNER) == self.job.id:
                    return batch
        wanted = {
            "input_file_id": (file := before.file or await self._uploaded(before)),
            "endpoint": "/v1/embeddings",
            "completion_window": "24h",
            "metadata": {OWNER: self.job.id},
        }
        try:
            return await self._asked("POST", "/batches", EmbeddingBatch, wanted)
        except EmbedderError as error:
            if error.lasting:
                await self._remove(file)
            raise

    async def _uploaded(self, before: BatchProgress) -> str:
        """The file with the texts. It is noted down: a service that makes no batch of it is asked again, without it."""
        missing = await self.memory.unembedded(self.embedder.space, MOST_TEXTS)
        lines, tokens = await asyncio.to_thread(self._lines_of, missing)
        if not lines:
            raise JobRefused("every text has its vector by now")
        if not before.reserved:
            try:
                await self.embedder.place.reserve(self.embedder.model, tokens)
            except EmbedderError as error:  # a day's tokens may never be enough for all at once
                raise JobRefused(str(error)) from None
            await self._note(BatchProgress(reserved=True))
        file = await self._upload(lines)
        await self._note(BatchProgress(reserved=True, file=file))
        return file

    async def _note(self, progress: BatchProgress) -> None:
        await self.services.jobs.note_progress(self.job.id, self.job.fence, progress)

    def _lines_of(self, missing: Sequence[MissingVector]) -> tuple[bytes, int]:
        """As many as a file may have, and their tokens. Blocks: it may be seconds."""
        lines, tokens, size = list[bytes](), 0, 0
        for each in missing:
            line = self._line(each.digest, each.meaning)
            if (size := size + len(line)) > MOST_BYTES:
                break
            lines.append(line)
            tokens += estimate_tokens(each.meaning)
        return b"".join(lines), tokens

    def _line(self, digest: bytes, text: str) -> bytes:
        body = self.embedder.body_of(text) | {"encoding_format": "base64"}
        line = {"custom_id": digest.hex(), "method": "POST", "url": "/v1/embeddings", "body": body}
        return msgspec.json.encode(line) + b"\n"

    async def _upload(self, lines: bytes) -> str:
        edge = f"pal-{self.job.id}"
        field = f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{edge}\r\n'
        file = 'Content-Disposition: form-data; name="file"; filename="texts.jsonl"\r\n'
        head = f"{field}{file}Content-Type: application/jsonl\r\n\r\n".encode()
        body = head + lines + f"\r\n--{edge}--\r\n".encode()
        said = await self.embedder.send("POST", "/files", body, content_type=f"multipart/form-data; boundary={edge}")
        return self._read(said, UploadedFile).id

    async def _look(self, batch_id: str) -> EmbeddingBatch:
        return await self._asked("GET", f"/batches/{batch_id}", EmbeddingBatch)

    async def _collect(self, batch: EmbeddingBatch) -> str:
        made, group = 0, list[bytes]()
        if batch.output_file_id:
            async for line in self._lines(batch.output_file_id):
                group.append(line)
                if len(group) == GROUP:
                    made += await self._store(group)
                    group = []
            made += await self._store(group)
        await self._remove(batch.input_file_id, batch.output_file_id, batch.error_file_id)
        if not made:
            raise JobRefused(self.unusable[0] if self.unusable else batch.why)
        left_out = f", {len(self.unusable):,} could not be used: {self.unusable[0]}" if self.unusable else ""
        return f"{made:,} vectors by the batch {batch.id}, which is {batch.status}{left_out}"

    async def _lines(self, file_id: str) -> AsyncIterator[bytes]:
        rest = b""
        async with self.embedder.streamed("GET", f"/files/{file_id}/content") as parts:
            async for data in parts:
                *whole, rest = (rest + data).split(b"\n")
                if len(rest) > MOST_LINE:
                    raise EmbedderError(f"a line of {file_id} is longer than {MOST_LINE:,} bytes", lasting=True)
                for line in whole:
                    yield line
        yield rest

    async def _store(self, lines: Sequence[bytes]) -> int:
        """Returns how many of them have a vector."""
        pairs = await asyncio.to_thread(lambda: [pair for line in lines if (pair := self._pair(line))])
        await self.memory.put_vectors(self.embedder.space, pairs)
        return len(pairs)

    def _pair(self, line: bytes) -> tuple[bytes, bytes] | None:
        if not line.strip():
            return None
        try:
            said = msgspec.json.decode(line, type=_Line)
            vectors = said.response.body.data if said.response else ()
            if len(vectors) == 1:
                return bytes.fromhex(said.custom_id), self.embedder.unit(_numbers(vectors[0].embedding))
            self.unusable.append(f"the service gave {len(vectors)} vectors for a text")
        except (EmbedderError, ValueError, struct.error) as error:  # msgspec's errors are ValueErrors
            self.unusable.append(str(error))
        return None

    async def _remove(self, *files: str | None) -> None:
        """The texts do not stay with the service longer than needed."""
        for file in filter(None, files):
            try:
                await self.embedder.send("DELETE", f"/files/{file}", b"")
            except EmbedderError as error:
                log.info("the file %s could not be removed: %s", file, error)

    async def _asked(self, method: str, path: str, form: type[T], body: object = None) -> T:
        return self._read(await self.embedder.send(method, path, msgspec.json.encode(body) if body else b""), form)

    def _read(self, said: bytes, form: type[T]) -> T:
        try:
            return msgspec.json.decode(said, type=form)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EmbedderError(f"{self.embedder.place.provider} gave no {form.__name__}: {error}") from None


def _numbers(said: list[float] | str) -> Sequence[float]:
    if isinstance(said, str):
        packed = base64.b64decode(said, validate=True)
        return struct.unpack(f"<{len(packed) // 4}f", packed)
    return said


async def advance_batch(services: Services, order: BatchOrder, job: Job) -> str:
    memory = services.memory(order.agent).builtin
    embedder = memory.batched_embedder(order.space)
    if not isinstance(embedder, RemoteEmbedder) or not embedder.takes_batches:
        raise JobRefused("the config has another embedder by now")
    try:
        return await BatchRun(services, memory, embedder, order, job).advance()
    except EmbedderError as error:
        if error.lasting:
            raise JobRefused(str(error)) from None
        raise JobFailed(str(error), retry_after=error.retry_after) from None


BATCH_KIND = JobKind(
    BATCH_JOB,
    BatchOrder,
    advance_batch,
    retry=RetryPolicy(first_ms=1_000, longest_ms=60_000, attempts=10**6, age_ms=8 * 24 * 3600 * 1000),
    on_crash="retry",
    seconds=1_800,
    stays=True,
)
