"""What a client asks for that we cannot force upon a model, and pass on as words: a tool to call, a form to keep to."""

from __future__ import annotations

from typing import Any

import msgspec

ToolChoice = str | dict[str, Any] | None


def further(instructions: str, choice: ToolChoice, form: dict[str, Any] | None) -> str:
    """The instructions of a client, with what its parameters ask for."""
    return "\n\n".join(part for part in (instructions, _choice(choice), _form(form)) if part)


def _choice(choice: ToolChoice) -> str:
    if choice == "required":
        return "Call at least one tool before you answer."
    if not isinstance(choice, dict):
        return ""
    function = choice.get("function")
    name = choice.get("name") or (function.get("name") if isinstance(function, dict) else "")
    return f"Call the tool {str(name)[:64]} before you answer." if name else ""


def _form(form: dict[str, Any] | None) -> str:
    kind = (form or {}).get("type")
    if kind == "json_object":
        return "Answer with one JSON object and nothing else."
    if form is None or kind != "json_schema":
        return ""
    told = form.get("json_schema") if isinstance(form.get("json_schema"), dict) else form
    schema = msgspec.json.encode((told or {}).get("schema") or {}).decode()
    return f"Answer with one JSON value and nothing else. It must match this JSON Schema:\n{schema}"
