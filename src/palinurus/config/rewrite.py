"""Sets or removes a value in a JSON5 text, or merges a patch, and leaves all other text unchanged.

Pure functions from text to text. They expect a text that parses, whose root is an object without repeated keys. New
members follow the style of their neighbours: indentation, quotes around keys, trailing comma, line ends.

A merge patch is that of RFC 7396: objects are merged key by key and null removes a key. Lists are replaced whole,
except lists whose elements have an `id`, which are merged by it: an element that the patch does not name stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from palinurus.config.source import JsonPath, SourceMap, SourceSpan, SyntaxFault, format_path, parse, scan, skip_trivia
from palinurus.domain.errors import BadRequest, ConfigError

_BARE_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_STEP = "  "


def put(text: str, path: JsonPath, value: Any) -> str:
    """The text with `value` at `path`. Missing objects are created. Raises BadRequest if that is not possible."""
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
    """The text without the member or element at `path`, which must exist. Comments around it stay."""
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
    """The value inside the objects and lists of its path."""
    for step in reversed(steps):
        if isinstance(step, str):
            value = {step: value}
        elif step == 0:
            value = [value]
        else:
            raise BadRequest(f"a new list begins with [0], not with [{step}]")
    return value


def _replace(text: str, span: SourceSpan, value: Any) -> str:
    return text[: span.start] + _rendered(value, text, _indent_at(text, span.begin)) + text[span.end :]


def _insert(text: str, source: SourceMap, holder: JsonPath, key: str | None, value: Any) -> str:
    """Adds a new member, or an element if `key` is None, at the end of an object or list."""
    close = source.spans[holder].end - 1
    siblings = [span for _, span in source.children(holder)]
    if not siblings:
        return _insert_first(text, source.spans[holder], key, value)
    last = siblings[-1]
    has_comma = text[skip_trivia(text, last.end)] == ","
    end = _last_mark(text, last.end, close)
    label = _label(key, quoted=last.key_start < 0 or text[last.key_start] in "\"'", quote=text[max(last.key_start, 0)])
    if "\n" in text[last.end : close]:
        indent = _indent_at(text, last.begin)
        new = f"{_line_end(text)}{indent}{label}{_rendered(value, text, indent)}{',' if has_comma else ''}"
    else:
        new = f" {label}{json.dumps(value, ensure_ascii=False)}{',' if has_comma else ''}"
    text = text[:end] + new + text[end:]
    return text if has_comma else text[: last.end] + "," + text[last.end :]


def _insert_first(text: str, span: SourceSpan, key: str | None, value: Any) -> str:
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
    """The white space at the start of an offset's line."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _cut(text: str, start: int, end: int) -> str:
    """Removes a span, and the whole line if nothing else is on it."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end + 1
    if line_start > 0 and not text[line_start:start].strip() and not text[end:line_end].strip():
        return text[:line_start] + text[line_end:]
    return text[:start] + text[end:]


Change = tuple[JsonPath, Any]


DROP = object()  # marks a key for removal


def apply_changes(text: str, edits: Iterable[Change], expected: Any) -> str:
    """The text after the edits. Raises ConfigError if its data would differ from what is expected."""
    for path, value in edits:
        text = drop(text, path) if value is DROP else put(text, path, value)
    return require_data(text, expected)


def require_data(text: str, expected: Any) -> str:
    """The text. Raises ConfigError if its data differs from what is expected."""
    try:
        same = _canonical(parse(text)) == _canonical(expected)
    except SyntaxFault:
        same = False
    if not same:
        raise ConfigError("this change cannot be made safely in this text", hint="edit the file by hand")
    return text


def with_values(data: Any, values: Iterable[Change]) -> Any:
    """The data with new values at existing paths."""
    for path, value in values:
        data = _with_value(data, path, value)
    return data


def _with_value(data: Any, path: JsonPath, value: Any) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(data, list):
        return [_with_value(item, rest, value) if at == step else item for at, item in enumerate(data)]
    return {**data, step: _with_value(data[step], rest, value)}


def merged(data: Any, patch: Any, replace: Collection[str] = (), path: JsonPath = ()) -> Any:
    """The data after the merge patch."""
    if isinstance(patch, dict):
        result = dict(data) if isinstance(data, dict) else {}
        for key, value in patch.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = merged(result.get(key), value, replace, (*path, key))
        return result
    if _has_ids(patch) and format_path(path) not in replace:
        before = data if _has_ids(data) else []
        named = {item["id"]: item for item in patch}
        kept = [merged(item, named.pop(item["id"], {}), replace, (*path, at)) for at, item in enumerate(before)]
        fresh = enumerate(named.values(), start=len(kept))
        return kept + [merged(None, item, replace, (*path, at)) for at, item in fresh]
    return patch


def changes(data: Any, patch: Any, replace: Collection[str] = (), path: JsonPath = ()) -> Iterator[Change]:
    """The single edits of a patch, in a valid order."""
    if isinstance(patch, dict) and isinstance(data, dict):
        for key, value in patch.items():
            if value is None and key in data:
                yield (*path, key), DROP
            elif value is not None:
                yield from changes(data.get(key), value, replace, (*path, key))
    elif _has_ids(data) and _has_ids(patch) and format_path(path) not in replace:
        places = {item["id"]: at for at, item in enumerate(data)}
        for item in patch:
            at = places.setdefault(item["id"], len(places))
            yield from changes(data[at] if at < len(data) else None, item, replace, (*path, at))
    elif _canonical(wanted := merged(data, patch, replace, path)) != _canonical(data):
        yield path, wanted


def _has_ids(value: Any) -> bool:
    """Whether it is a list of objects with unique ids."""
    if not isinstance(value, list) or not value:
        return False
    ids = [item.get("id") if isinstance(item, dict) else None for item in value]
    return all(isinstance(each, str) for each in ids) and len(set(ids)) == len(ids)


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True)
