"""A run in the shape of a response: the object, and the events that tell it piece by piece."""

from __future__ import annotations

from typing import Any

import msgspec

from palinurus.domain.errors import Failure
from palinurus.domain.events import RunResult
from palinurus.gateway.openai.asking import Asked
from palinurus.gateway.openai.calls import arguments_of, named_calls
from palinurus.gateway.openai.shapes import ResponsesRequest
from palinurus.gateway.openai.troubles import Trouble

_encode = msgspec.json.encode


class ResponseTeller:
    """Implements stream.Teller."""

    def __init__(self, asked: Asked, body: ResponsesRequest) -> None:
        self._run = asked.run
        self._body = body
        self._number = 0
        self._said: list[str] = []

    def whole(self, result: RunResult) -> dict[str, Any]:
        """The object, with the text of the last reply."""
        return self._ended(result, result.text)

    def begin(self) -> bytes:
        begun = {"response": self._response("in_progress", [])}
        return self._event("response.created", **begun) + self._event("response.in_progress", **begun)

    def say(self, text: str) -> bytes:
        opened = b"" if self._said else self._open()
        self._said.append(text)
        return opened + self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def end(self, result: RunResult) -> bytes:
        closed = self._close() if self._said else b""
        first = 1 if self._said else 0
        calls = b"".join(self._call(first + index, item) for index, item in enumerate(_calls(result)))
        response = self._ended(result, "".join(self._said))
        kind = "response.completed" if response["status"] == "completed" else "response.incomplete"
        return closed + calls + self._event(kind, response=response) + b"data: [DONE]\n\n"

    def fail(self, trouble: Trouble) -> bytes:
        error = {"code": trouble.code or "server_error", "message": trouble.message}
        output = [self._message("".join(self._said), "incomplete")] if self._said else []
        failed = {**self._response("failed", output), "error": error}
        return self._event("response.failed", response=failed) + b"data: [DONE]\n\n"

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._run.id}", "output_index": 0, "content_index": 0}

    def _open(self) -> bytes:
        item = {**self._message("", "in_progress"), "content": []}
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._event("response.content_part.added", **self._place, part=_part(""))

    def _close(self) -> bytes:
        text = "".join(self._said)
        done = self._event("response.output_text.done", **self._place, text=text, logprobs=[])
        part = self._event("response.content_part.done", **self._place, part=_part(text))
        item = self._message(text, "completed")
        return done + part + self._event("response.output_item.done", output_index=0, item=item)

    def _call(self, index: int, item: dict[str, Any]) -> bytes:
        begun = {**item, "status": "in_progress", "arguments": ""}
        place = {"item_id": item["id"], "output_index": index}
        told = {**place, "name": item["name"], "arguments": item["arguments"]}
        return (
            self._event("response.output_item.added", output_index=index, item=begun)
            + self._event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            + self._event("response.function_call_arguments.done", **told)
            + self._event("response.output_item.done", output_index=index, item=item)
        )

    def _event(self, kind: str, **data: Any) -> bytes:
        told = _encode({"type": kind, "sequence_number": self._number, **data})
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + told + b"\n\n"

    def _message(self, text: str, status: str) -> dict[str, Any]:
        said = {"id": f"msg_{self._run.id}", "type": "message", "role": "assistant", "status": status}
        return {**said, "content": [_part(text)]}

    def _ended(self, result: RunResult, text: str) -> dict[str, Any]:
        why = _incomplete(result)
        status = "incomplete" if why else "completed"
        calls = _calls(result)
        # Something is always said, be it nothing: clients reach for the first item.
        output = [*([self._message(text, status)] if text or not calls else []), *calls]
        response = self._response(status, output)
        return {**response, "incomplete_details": {"reason": why} if why else None, "usage": _usage(result)}

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        body = self._body
        return {
            "id": f"resp_{self._run.id}",
            "object": "response",
            "created_at": self._run.accepted_at // 1000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "metadata": body.metadata or {},
            "model": body.model or "palinurus",
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": body.previous_response_id,
            "temperature": None,
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": None,
            "usage": None,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _calls(result: RunResult) -> list[dict[str, Any]]:
    return [
        {
            "id": f"fc_{named.removeprefix('call_')}",
            "type": "function_call",
            "call_id": named,
            "name": call.name,
            "arguments": arguments_of(call),
            "status": "completed",
        }
        for named, call in named_calls(result)
    ]


def _incomplete(result: RunResult) -> str:
    if result.error_kind == Failure.REFUSAL:
        return "content_filter"
    return "max_output_tokens" if result.stop_reason == "length" and not result.calls else ""


def _usage(result: RunResult) -> dict[str, Any]:
    usage = result.usage
    read = usage.input + usage.cache_read + usage.cache_write
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + usage.output,
    }
