"""Put a value into a JSON5 text, or take one out, without touching any other character that matters.

Pure functions from text to text. They expect a text that parses, whose root is an object without repeated keys. New
members follow the look of their neighbours: indentation, quotes around keys, trailing comma, line ends.
"""

from __future__ import annotations

import json
import re
from typing import Any

from palinurus.config.source import JsonPath, SourceMap, Span, format_path, scan, skip_trivia
from palinurus.domain.errors import BadRequest

_BARE_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_STEP = "  "


def put(text: str, path: JsonPath, value: Any) -> str:
    """The text with `value` at `path`. Objects on the way are made. Raises BadRequest where nothing can be put."""
    source = scan(text)
    if path in source.spans:
        return _replace(text, source.spans[path], value)
    depth = next(size for size in range(len(path) - 1, -1, -1) if path[:size] in source.spans)
    holder, span = path[:depth], source.spans[path[:depth]]
    step, nested = path[depth], _nested(path[depth + 1 :], value)
    if text[span.start : span.end] == "null":
        return _replace(text, span, _nested(path[depth:], value))
    if text[span.start] == "{" and isinstance(step, str):
        return _insert(text, source, holder, step, nested)
    if text[span.start] == "[" and step == len(source.children(holder)):
        return _insert(text, source, holder, None, nested)
    wanted = "an object" if isinstance(step, str) else "a list that is long enough"
    raise BadRequest(f"{format_path(path)} cannot be set: {format_path(holder)} is not {wanted}")


def drop(text: str, path: JsonPath) -> str:
    """The text without the member or element at `path`, which must be there. Comments around it stay."""
    source = scan(text)
    span = source.spans[path]
    siblings = [found for _, found in source.children(path[:-1])]
    at = siblings.index(span)
    cuts = [(span.begin, span.end)]
    comma = skip_trivia(text, span.end)
    if text[comma] == ",":
        cuts.append((comma, comma + 1))
    elif at > 0:
        comma = skip_trivia(text, siblings[at - 1].end)
        cuts.append((comma, comma + 1))
    for start, end in sorted(cuts, reverse=True):
        text = _cut(text, start, end)
    return text


def _nested(steps: JsonPath, value: Any) -> Any:
    """The value inside the objects and lists that lead to it."""
    for step in reversed(steps):
        if isinstance(step, str):
            value = {step: value}
        elif step == 0:
            value = [value]
        else:
            raise BadRequest(f"a new list begins with [0], not with [{step}]")
    return value


def _replace(text: str, span: Span, value: Any) -> str:
    return text[: span.start] + _rendered(value, text, _indent_at(text, span.begin)) + text[span.end :]


def _insert(text: str, source: SourceMap, holder: JsonPath, key: str | None, value: Any) -> str:
    """Put a new member, or an element when `key` is None, at the end of an object or list."""
    close = source.spans[holder].end - 1
    siblings = [span for _, span in source.children(holder)]
    if not siblings:
        return _insert_first(text, source.spans[holder], key, value)
    last = siblings[-1]
    comma = skip_trivia(text, last.end)
    has_comma = text[comma] == ","
    end = _last_mark(text, last.end, close)
    label = _label(key, quoted=last.key_start < 0 or text[last.key_start] in "\"'", quote=text[max(last.key_start, 0)])
    if "\n" in text[last.end : close]:
        indent = _indent_at(text, last.begin)
        new = f"{_line_end(text)}{indent}{label}{_rendered(value, text, indent)}{',' if has_comma else ''}"
    else:
        new = f" {label}{json.dumps(value, ensure_ascii=False)}{',' if has_comma else ''}"
    text = text[:end] + new + text[end:]
    return text if has_comma else text[: last.end] + "," + text[last.end :]


def _insert_first(text: str, span: Span, key: str | None, value: Any) -> str:
    close = span.end - 1
    end = _last_mark(text, span.start + 1, close)
    label = _label(key, quoted=True)
    outer = _indent_at(text, span.begin)
    if end > span.start + 1 and "\n" not in text[end:close]:  # a comment on one line with both braces
        return f"{text[:end]} {label}{json.dumps(value, ensure_ascii=False)} {text[close:]}"
    new = f"{_line_end(text)}{outer}{_STEP}{label}{_rendered(value, text, outer + _STEP)}"
    return f"{text[:end]}{new}{_line_end(text)}{outer}{text[close:]}"


def _label(key: str | None, *, quoted: bool, quote: str = '"') -> str:
    if key is None:
        return ""
    if not quoted and _BARE_KEY.fullmatch(key):
        return f"{key}: "
    written = json.dumps(key, ensure_ascii=False)
    if quote == "'" and "'" not in key and "\\" not in written:
        written = f"'{key}'"
    return f"{written}: "


def _rendered(value: Any, text: str, indent: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=len(_STEP)).split("\n")
    return f"{_line_end(text)}{indent}".join(lines)


def _last_mark(text: str, start: int, close: int) -> int:
    """Where the last comma or comment before a closing bracket ends."""
    return start + len(text[start:close].rstrip())


def _indent_at(text: str, offset: int) -> str:
    """The white space that begins the line of an offset."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _cut(text: str, start: int, end: int) -> str:
    """Take a stretch out, and the whole line when nothing else stands on it."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end + 1
    if line_start > 0 and not text[line_start:start].strip() and not text[end:line_end].strip():
        return text[:line_start] + text[line_end:]
    return text[:start] + text[end:]
