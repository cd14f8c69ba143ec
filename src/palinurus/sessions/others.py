"""Converts lines of other agents' transcripts into entries: Claude Code, Codex, and agents that store messages in
OpenAI's form (nanobot, Hermes).

They are stored byte for byte, as all imports, and converted on read. A line that is not a message becomes an entry that
no model reads.
"""

from __future__ import annotations

import json
from typing import Any

CODEX = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
STOPS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "toolUse"}
Form = dict[str, Any]


def others_form(value: Form) -> Form | None:
    """The line with a type and a message in our form; None if it is from none of these programs."""
    kind = value.get("type")
    if kind in CODEX and isinstance(value.get("payload"), dict):
        return _codex(value, value["payload"])
    if "uuid" in value and kind in ("user", "assistant") and isinstance(value.get("message"), dict):
        return _claude(value, value["message"])
    if isinstance(kind, str) and ("uuid" in value or "sessionId" in value or "leafUuid" in value):
        return _state(f"claude-code:{kind}", value)
    if kind is None and isinstance(value.get("_type"), str):
        return _state(f"nanobot:{value['_type']}", value)
    if kind is None and (isinstance(value.get("tool_calls"), list) or "tool_call_id" in value):
        return {"type": "message", "timestamp": value.get("timestamp"), "message": _openai(value)}
    return None


def message_of(value: Form) -> Form:
    """The message in a line, in our form; empty if there is none."""
    form = others_form(value)
    message = form.get("message") if form and form["type"] == "message" else None
    return message if isinstance(message, dict) else {}


def _state(name: str, value: Form) -> Form:
    return {"type": "custom", "customType": name, "timestamp": value.get("timestamp")}


def _claude(value: Form, said: Form) -> Form:
    if value.get("isSidechain") is True:  # a subagent's own messages
        return _state("claude-code:sidechain", value)
    content = said.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    results = [block for block in blocks if block.get("type") == "tool_result"]
    if value["type"] == "user" and results:
        message = _result(str(results[0].get("tool_use_id") or ""), results[0].get("content"))
        message["isError"] = results[0].get("is_error") is True
    elif value["type"] == "user":
        message = {"role": "user", "content": content if isinstance(content, str) else _texts(blocks)}
    else:
        message = {"role": "assistant", "content": [done for block in blocks if (done := _claude_block(block))]}
        message |= {"provider": "anthropic", "model": str(said.get("model") or "")}
        message["stopReason"] = STOPS.get(str(said.get("stop_reason")), "stop")
    return {"type": "message", "timestamp": value.get("timestamp"), "message": message}


def _claude_block(block: Form) -> Form | None:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": str(block.get("text") or "")}
        case "thinking":
            return {"type": "thinking", "thinking": str(block.get("thinking") or "")}
        case "tool_use":
            return _call(block.get("id"), block.get("name"), block.get("input"))
        case _:
            return None


def _codex(value: Form, item: Form) -> Form:
    message: Form | None = None
    if value["type"] == "response_item":
        match item.get("type"):
            case "message" if item.get("role") in ("user", "assistant"):
                message = {"role": item["role"], "content": _texts(item.get("content"))}
            case "function_call" | "custom_tool_call" as kind:
                sent = item.get("arguments" if kind == "function_call" else "input")
                message = _calling(_call(item.get("call_id"), item.get("name"), sent))
            case "local_shell_call":
                message = _calling(_call(item.get("call_id"), "local_shell", item.get("action")))
            case "function_call_output" | "custom_tool_call_output":
                output = item.get("output")
                text = output.get("content") if isinstance(output, dict) else output
                message = _result(str(item.get("call_id") or ""), text)
            case _:
                pass
    if message is None:
        return _state(f"codex:{value['type']}", value)
    return {"type": "message", "timestamp": value.get("timestamp"), "message": message}


def _openai(said: Form) -> Form:
    content = said.get("content")
    if "tool_call_id" in said:
        result = _result(str(said["tool_call_id"]), content)
        return {**result, "toolName": str(said.get("name") or "tool")}
    calls = []
    for call in said.get("tool_calls") or []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            calls.append(_call(call.get("id"), function.get("name"), function.get("arguments")))
    return _calling(*([{"type": "text", "text": content}] if isinstance(content, str) and content else []), *calls)


def _calling(*blocks: Form) -> Form:
    return {"role": "assistant", "content": list(blocks), "stopReason": "toolUse"}


def _call(call_id: Any, name: Any, arguments: Any) -> Form:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"input": arguments}
    if not isinstance(arguments, dict):
        arguments = {} if arguments is None else {"input": arguments}
    return {"type": "toolCall", "id": str(call_id or ""), "name": str(name or "tool"), "arguments": arguments}


def _result(call_id: str, content: Any) -> Form:
    blocks = content if isinstance(content, str) else _texts(content)
    return {"role": "toolResult", "toolCallId": call_id, "toolName": "tool", "content": blocks}


def _texts(content: Any) -> list[Form]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    found = (block.get("text") if isinstance(block, dict) else block for block in blocks)
    return [{"type": "text", "text": text} for text in found if isinstance(text, str)]
