"""The wires as a model server speaks them: the same behaviour, in the words of OpenAI (two), Anthropic or Google.

Each dialect keeps habits seen in the field: pings, empty deltas, blocks opened at once and filled by turns, thoughts
with signatures, calls without ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from .behaviours import Calls, Json, Says, Word


class Dialect(Protocol):
    """How one wire says things. Every piece of bytes is one whole server-sent event."""

    def reply(self, reply: Says | Calls, model: str) -> list[bytes]:
        """A whole reply, to its proper end."""

    def part(self, text: str, model: str) -> list[bytes]:
        """The beginning of a reply that says this much."""

    def done(self) -> list[bytes]:
        """What closes a stream without saying how the reply ended; nothing where the wire has no such thing."""

    def error(self, error: Json | str) -> bytes: ...

    def whole(self, reply: Says | Calls, model: str) -> bytes:
        """The JSON of a reply that is not streamed."""

    def last(self, body: Json) -> Word:
        """Who spoke last in a request, and what was said."""


def dialect_of(path: str) -> Dialect:
    """Goes by where the request was sent."""
    if path.endswith("/messages"):
        return AnthropicDialect()
    if path.endswith("/responses"):
        return ResponsesDialect()
    return GoogleDialect() if "enerateContent" in path else OpenAIDialect()


def _event(data: Any, name: str = "") -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


class OpenAIDialect:
    def reply(self, reply: Says | Calls, model: str) -> list[bytes]:
        events = [self._chunk(model, delta) for delta in _openai_deltas(reply)]
        events.append(self._chunk(model, {}, reply.finish))
        if reply.usage is not None:
            events.append(_event({**self._frame(model), "choices": [], "usage": reply.usage}))
        return events + (self.done() if reply.done else [])

    def part(self, text: str, model: str) -> list[bytes]:
        return [self._chunk(model, {"content": text})]

    def done(self) -> list[bytes]:
        return [b"data: [DONE]\n\n"]

    def error(self, error: Json | str) -> bytes:
        return _event({"error": error})

    def whole(self, reply: Says | Calls, model: str) -> bytes:
        message: Json = {"role": "assistant", "content": reply.text or None}
        if isinstance(reply, Calls):
            message["tool_calls"] = _openai_calls(reply)
        choice = {"index": 0, "message": message, "finish_reason": reply.finish}
        frame = {**self._frame(model), "object": "chat.completion"}
        return msgspec.json.encode({**frame, "choices": [choice], "usage": reply.usage})

    def last(self, body: Json) -> Word:
        message = (body.get("messages") or [{}])[-1]
        content = message.get("content")
        return Word("tool" if message.get("role") == "tool" else "user", content if isinstance(content, str) else "")

    def _frame(self, model: str) -> Json:
        return {"id": "chatcmpl-wire", "object": "chat.completion.chunk", "created": 0, "model": model}

    def _chunk(self, model: str, delta: Json, finish: str | None = None) -> bytes:
        return _event({**self._frame(model), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _openai_deltas(reply: Says | Calls) -> Iterator[Json]:
    if isinstance(reply, Says):
        if reply.thinking:
            yield {"reasoning_content": reply.thinking}
        yield from ({"content": piece} for piece in reply.pieces())
        return
    if reply.text:
        yield {"content": reply.text}
    calls = _openai_calls(reply)
    if reply.whole:
        yield from ({"tool_calls": [call]} for call in calls)
        return
    for index, call in enumerate(calls):
        yield {"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]}
    for index, piece in reply.interleaved():
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _openai_calls(reply: Calls) -> list[Json]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
        for call in reply.listed()
    ]


ANTHROPIC_STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use"}


class AnthropicDialect:
    def reply(self, reply: Says | Calls, model: str) -> list[bytes]:
        usage = _anthropic_usage(reply.usage)
        return [
            *self._opening(model, usage),
            *self._blocks(reply),
            self._event(
                "message_delta", delta={"stop_reason": _stop(reply)}, usage={"output_tokens": usage["output_tokens"]}
            ),
            *(self.done() if reply.done else []),
        ]

    def part(self, text: str, model: str) -> list[bytes]:
        return [*self._opening(model, _anthropic_usage(None)), *self._text(0, [text])[:-1]]

    def done(self) -> list[bytes]:
        return [self._event("message_stop")]

    def error(self, error: Json | str) -> bytes:
        return self._event("error", error=error)

    def whole(self, reply: Says | Calls, model: str) -> bytes:
        content: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
        if isinstance(reply, Calls):
            content += [{**_tool_use(call.id, call.name), "input": call.parsed} for call in reply.listed()]
        message = {"type": "message", "role": "assistant", "model": model, "content": content}
        return msgspec.json.encode({**message, "stop_reason": _stop(reply), "usage": _anthropic_usage(reply.usage)})

    def last(self, body: Json) -> Word:
        content: Any = (body.get("messages") or [{}])[-1].get("content") or [{}]
        block: Json = {"type": "text", "text": content} if isinstance(content, str) else content[-1]
        if block.get("type") != "tool_result":
            return Word("user", block.get("text", ""))
        return Word("tool", "\n".join(part.get("text", "") for part in block["content"]))

    def _opening(self, model: str, usage: Json) -> list[bytes]:
        message = {"type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
        return [self._event("message_start", message=message), self._event("ping")]

    def _blocks(self, reply: Says | Calls) -> list[bytes]:
        """In the order of their index; the calls are opened together and filled by turns."""
        blocks: list[list[bytes]] = []
        if isinstance(reply, Says) and reply.thinking:
            blocks.append(self._thinking(0, reply.thinking, reply.signature))
        if isinstance(reply, Says) and reply.redacted:
            start = {"type": "redacted_thinking", "data": reply.redacted}
            blocks.append([self._start(len(blocks), start), self._stop(len(blocks))])
        if reply.text:
            blocks.append(self._text(len(blocks), reply.pieces() if isinstance(reply, Says) else [reply.text]))
        if isinstance(reply, Calls):
            blocks.append(self._calls(len(blocks), reply))
        return [event for block in blocks for event in block]

    def _text(self, index: int, pieces: list[str]) -> list[bytes]:
        start = self._start(index, {"type": "text", "text": ""})
        deltas = [self._delta(index, type="text_delta", text=piece) for piece in ["", *pieces]]
        return [start, *deltas, self._stop(index)]

    def _thinking(self, index: int, thinking: str, signature: str) -> list[bytes]:
        half = len(signature) // 2
        return [
            self._start(index, {"type": "thinking", "thinking": "", "signature": ""}),
            self._delta(index, type="thinking_delta", thinking=thinking),
            self._delta(index, type="signature_delta", signature=signature[:half]),
            self._delta(index, type="signature_delta", signature=signature[half:]),
            self._stop(index),
        ]

    def _calls(self, first: int, reply: Calls) -> list[bytes]:
        listed = reply.listed()
        if reply.whole:
            starts = [{**_tool_use(call.id, call.name), "input": call.parsed} for call in listed]
            return [
                event for at, start in enumerate(starts, first) for event in (self._start(at, start), self._stop(at))
            ]
        return [
            *(self._start(at, _tool_use(call.id, call.name)) for at, call in enumerate(listed, first)),
            *(
                self._delta(first + at, type="input_json_delta", partial_json=piece)
                for at, piece in reply.interleaved()
            ),
            *(self._stop(at) for at, _ in enumerate(listed, first)),
        ]

    def _start(self, index: int, block: Json) -> bytes:
        return self._event("content_block_start", index=index, content_block=block)

    def _delta(self, index: int, **delta: str) -> bytes:
        return self._event("content_block_delta", index=index, delta=delta)

    def _stop(self, index: int) -> bytes:
        return self._event("content_block_stop", index=index)

    def _event(self, kind: str, **fields: Any) -> bytes:
        return _event({"type": kind, **fields}, kind)


def _stop(reply: Says | Calls) -> str:
    return ANTHROPIC_STOPS.get(reply.finish, reply.finish)


def _tool_use(call_id: str, name: str) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def _anthropic_usage(usage: Json | None) -> Json:
    """From OpenAI's words, in which behaviours are written."""
    told = usage or {}
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return {
        "input_tokens": told.get("prompt_tokens", 0) - cached,
        "output_tokens": told.get("completion_tokens", 0),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": told.get("cache_write", 0),
    }


GOOGLE_STOPS = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "tool_calls": "STOP",
    "error": "OTHER",
}


class GoogleDialect:
    def reply(self, reply: Says | Calls, model: str) -> list[bytes]:
        parts = self._parts(reply)
        last = self._chunk(model, [{"text": ""}], finishReason=GOOGLE_STOPS.get(reply.finish, reply.finish))
        return [*(_event(self._chunk(model, [part])) for part in parts), _event({**last, **self._usage(reply)})]

    def part(self, text: str, model: str) -> list[bytes]:
        return [_event(self._chunk(model, [{"text": text}]))]

    def done(self) -> list[bytes]:
        return []

    def error(self, error: Json | str) -> bytes:
        return _event({"error": error})

    def whole(self, reply: Says | Calls, model: str) -> bytes:
        finish = GOOGLE_STOPS.get(reply.finish, reply.finish)
        return msgspec.json.encode(
            {**self._chunk(model, self._parts(reply), finishReason=finish), **self._usage(reply)}
        )

    def last(self, body: Json) -> Word:
        part = ((body.get("contents") or [{}])[-1].get("parts") or [{}])[-1]
        if answer := part.get("functionResponse"):
            return Word("tool", str(next(iter(answer["response"].values()))))
        return Word("user", part.get("text", ""))

    def _parts(self, reply: Says | Calls) -> list[Json]:
        parts: list[Json] = []
        if isinstance(reply, Says):
            if reply.thinking:
                parts.append({"text": reply.thinking, "thought": True})
            parts += [{"text": piece} for piece in reply.pieces()]
            return parts + ([{"text": "", "thoughtSignature": reply.signature}] if reply.signature else [])
        parts += [{"text": reply.text}] if reply.text else []
        for call in reply.listed():
            known = {} if reply.nameless else {"id": call.id}
            parts.append({"functionCall": {**known, "name": call.name, "args": call.parsed}})
        if reply.signature:  # only the first of parallel calls is signed
            parts[-len(reply.calls)]["thoughtSignature"] = reply.signature
        return parts

    def _chunk(self, model: str, parts: list[Json], **fields: str) -> Json:
        content = {"role": "model", "parts": parts}
        return {"candidates": [{"index": 0, "content": content, **fields}], "modelVersion": model}

    def _usage(self, reply: Says | Calls) -> Json:
        told = reply.usage or {}
        return {
            "usageMetadata": {
                "promptTokenCount": told.get("prompt_tokens", 0),
                "candidatesTokenCount": told.get("completion_tokens", 0),
                "cachedContentTokenCount": (told.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
                "thoughtsTokenCount": told.get("thoughts", 0),
            }
        }


class ResponsesDialect:
    """OpenAI's newer wire: items with an index, each opened, filled and closed."""

    def reply(self, reply: Says | Calls, model: str) -> list[bytes]:
        items = self._items(reply)
        ended = self._response(reply, model, items)
        kind = "response.completed" if ended["status"] == "completed" else "response.incomplete"
        return [
            *self._opening(model),
            *self._filled(reply, items),
            *([self._event(kind, response=ended)] if reply.done else []),
        ]

    def part(self, text: str, model: str) -> list[bytes]:
        said = Says(text, usage=None)
        return [*self._opening(model), *self._filled(said, self._items(said))[:-1]]

    def done(self) -> list[bytes]:
        return [b"data: [DONE]\n\n"]  # some servers of this wire send it too

    def error(self, error: Json | str) -> bytes:
        known = error if isinstance(error, dict) else {"message": error}
        code = known.get("code") or known.get("type")
        return self._event("error", code=code, message=known.get("message"), param=None)

    def whole(self, reply: Says | Calls, model: str) -> bytes:
        return msgspec.json.encode(self._response(reply, model, self._items(reply)))

    def last(self, body: Json) -> Word:
        given = body.get("input") or [{}]
        item: Json = {"content": given} if isinstance(given, str) else given[-1]
        if item.get("type") == "function_call_output":
            return Word("tool", str(item["output"]))
        content = item.get("content")
        return Word("user", content if isinstance(content, str) else "")

    def _opening(self, model: str) -> list[bytes]:
        begun = {"object": "response", "id": "resp_wire", "model": model, "status": "in_progress", "output": []}
        return [self._event(f"response.{each}", response=begun) for each in ("created", "in_progress")]

    def _items(self, reply: Says | Calls) -> list[Json]:
        items: list[Json] = []
        if isinstance(reply, Says) and (reply.thinking or reply.signature):
            summary = [{"type": "summary_text", "text": reply.thinking}] if reply.thinking else []
            sealed = {"encrypted_content": reply.signature} if reply.signature else {}
            items.append({"type": "reasoning", "id": "rs_0", "summary": summary, **sealed})
        if reply.text:
            content = [{"type": "output_text", "text": reply.text, "annotations": []}]
            items.append({"type": "message", "id": "msg_0", "role": "assistant", "content": content})
        if isinstance(reply, Calls):
            for call in reply.listed():
                known = {"id": f"fc_{call.id}", "call_id": call.id, "name": call.name, "arguments": call.raw}
                items.append({"type": "function_call", **known})
        return items

    def _filled(self, reply: Says | Calls, items: list[Json]) -> list[bytes]:
        """The calls are opened together and filled by turns."""
        first = next((at for at, item in enumerate(items) if item["type"] == "function_call"), len(items))
        events = [event for at, item in enumerate(items[:first]) for event in self._said(at, item, reply)]
        if not isinstance(reply, Calls):
            return events
        calls = list(enumerate(items[first:], first))
        if not reply.whole:
            events += [self._item("added", at, {**item, "arguments": ""}) for at, item in calls]
            kind = "response.function_call_arguments.delta"
            events += [self._event(kind, output_index=first + at, delta=piece) for at, piece in reply.interleaved()]
        return events + [self._item("done", at, item) for at, item in calls]

    def _said(self, at: int, item: Json, reply: Says | Calls) -> list[bytes]:
        thinks = item["type"] == "reasoning"
        kind = "response.reasoning_summary_text.delta" if thinks else "response.output_text.delta"
        pieces = [reply.text] if isinstance(reply, Calls) else [reply.thinking] if thinks else reply.pieces()
        empty = {**item, "summary": [], "content": [], "encrypted_content": None}
        part = "response.reasoning_summary_part.added" if thinks else "response.content_part.added"
        return [
            self._item("added", at, empty),
            self._event(part, output_index=at, part={"text": ""}),
            *(self._event(kind, output_index=at, delta=piece) for piece in ["", *pieces]),
            self._item("done", at, item),
        ]

    def _item(self, kind: str, at: int, item: Json) -> bytes:
        return self._event(f"response.output_item.{kind}", output_index=at, item=item)

    def _response(self, reply: Says | Calls, model: str, items: list[Json]) -> Json:
        why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish)
        told = reply.usage or {}
        details = told.get("prompt_tokens_details") or {"cached_tokens": 0}
        usage = {
            "input_tokens": told.get("prompt_tokens", 0),
            "input_tokens_details": details,
            "output_tokens": told.get("completion_tokens", 0),
        }
        return {
            "object": "response", "id": "resp_wire", "model": model, "output": items, "error": None,
            "status": "incomplete" if why else "completed", "usage": usage,
            "incomplete_details": {"reason": why} if why else None,
        }  # fmt: skip

    def _event(self, kind: str, **fields: Any) -> bytes:
        return _event({"type": kind, **fields}, kind)
