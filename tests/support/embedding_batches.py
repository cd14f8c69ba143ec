"""OpenAI's Batch API on loopback, as `EmbeddingServer.other`: files, batches, and how each batch ends."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

from palinurus.testing.fakes import vector_of
from support.embedding_server import Refuses

Json = Any
Lines = list[Json]


class BatchDesk:
    """A batch is under way for `looks` looks, then it ends as `ends` says, with `spoil` applied to its lines."""

    def __init__(self, dimensions: int = 64) -> None:
        self.dimensions = dimensions
        self.looks = 2
        self.ends = "completed"
        self.spoil: Callable[[Lines], Lines] = lambda lines: lines
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Json] = {}
        self.submitted: list[Json] = []  # what was asked for, one for each batch
        self.bodies: list[Json] = []  # of the texts
        self.busy = 0  # so many times no batch is made
        self.loses_answer = 0  # so many batches are made without an answer that says so
        self.looked: dict[str, int] = {}
        self.calls: list[str] = []

    def answer(self, method: str, path: str, body: bytes) -> Json | bytes | None:
        parts = path.partition("?")[0].removeprefix("/v1/").split("/")
        self.calls.append(f"{method} {parts[0]}")
        match (method, *parts):
            case ("POST", "files"):
                return self._upload(body)
            case ("GET", "files", name, "content"):
                return self.files.get(name, Refuses(404))
            case ("DELETE", "files", name):
                return {"id": name, "object": "file", "deleted": self.files.pop(name, None) is not None}
            case ("GET", "batches"):
                return {"object": "list", "data": list(self.batches.values()), "has_more": False}
            case ("POST", "batches"):
                return self._begin(json.loads(body))
            case ("GET", "batches", name):
                return self._look(name) if name in self.batches else Refuses(404)
            case ("POST", "batches", name, "cancel"):
                self.batches[name]["status"] = "cancelling"
                return self.batches[name]
        return None

    def _upload(self, body: bytes) -> Json:
        edge, _, rest = body.partition(b"\r\n")
        fields = dict(part.split(b"\r\n\r\n", 1) for part in rest.removesuffix(edge + b"--\r\n").split(edge + b"\r\n"))
        purpose, file = ([value for head, value in fields.items() if name in head] for name in (b"purpose", b"file"))
        assert purpose == [b"batch\r\n"]
        name = f"file-{len(self.files) + len(self.calls)}"
        self.files[name] = file[0].removesuffix(b"\r\n")
        return {"id": name, "object": "file", "bytes": len(file[0]), "created_at": 1, "filename": "texts.jsonl",
                "purpose": "batch", "status": "processed"}  # fmt: skip

    def _begin(self, wanted: Json) -> Json | Refuses:
        if self.busy:
            self.busy -= 1
            return Refuses(503)
        self.submitted.append(wanted)
        name = f"batch-{len(self.submitted)}"
        lines = [json.loads(line) for line in self.files[wanted["input_file_id"]].splitlines()]
        self.bodies += [line["body"] for line in lines]
        counts = {"total": len(lines), "completed": 0, "failed": 0}
        self.batches[name] = {"id": name, "object": "batch", "created_at": 1, "status": "validating",
                              "request_counts": counts, **wanted}  # fmt: skip
        if self.loses_answer:
            self.loses_answer -= 1
            return Refuses(503)
        return self.batches[name]

    def _look(self, name: str) -> Json:
        batch = self.batches[name]
        self.looked[name] = self.looked.get(name, 0) + 1
        if self.looked[name] <= self.looks:
            batch["status"] = "in_progress"
        elif batch["status"] in ("validating", "in_progress"):
            self._end(batch)
        return batch

    def _end(self, batch: Json) -> None:
        batch["status"] = self.ends
        if self.ends == "failed":
            batch["errors"] = {"object": "list", "data": [{"code": "x", "message": "the queue of tokens is full"}]}
            return
        asked = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        lines = self.spoil([self._line(each) for each in asked])
        if lines:
            batch["output_file_id"] = f"file-of-{batch['id']}"
            self.files[batch["output_file_id"]] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    def _line(self, asked: Json) -> Json:
        [text] = asked["body"]["input"]
        vector = vector_of(" ".join(f"{asked['body']['model']}_{word}" for word in text.split()), self.dimensions)
        data = [{"object": "embedding", "index": 0, "embedding": base64.b64encode(vector).decode()}]
        body = {"object": "list", "data": data, "model": asked["body"]["model"]}
        return {"id": "x", "custom_id": asked["custom_id"], "error": None,
                "response": {"status_code": 200, "request_id": "y", "body": body}}  # fmt: skip


def as_list(line: Json) -> Json:
    """The vector as numbers, as servers give it that know no base64."""
    [vector] = line["response"]["body"]["data"]
    packed = base64.b64decode(vector["embedding"])
    vector["embedding"] = list(struct.unpack(f"<{len(packed) // 4}f", packed))
    return line
