"""The front matter of a SKILL.md as plain data, however its author meant it and whatever it was made to do.

Anybody may have written it. So it is short, flat and without tricks, or it is refused with a sentence: no anchors and
aliases (a dozen lines of them make a billion), no depth, no key twice (two readers would see two skills), no characters
that cannot be seen. Every scalar is text; what `yes` or `1.0` mean is decided where it is used. Front matter that is no
YAML, usually for a colon in a description, is read line by line.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, NamedTuple

from palinurus.domain.errors import BadRequest

MAX_CHARACTERS = 64 * 1024
MAX_DEPTH = 16
MAX_NODES = 4_000
_FENCE = re.compile(r"-{3,}[ \t]*")
_FIELD = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*)|)")
# Marks of direction, joiners of nothing, and the tag block: what a person does not see and a model reads.
_HIDDEN = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e007f]")


class FrontMatter(NamedTuple):
    fields: dict[str, Any]
    body: str
    remark: str = ""  # what was odd about it


def read_front_matter(data: bytes) -> FrontMatter:
    """Raises BadRequest with the reason."""
    text = _text(data)
    head, body = _split(text)
    if len(head) > MAX_CHARACTERS:
        raise BadRequest(f"its front matter has {len(head):,} characters; {MAX_CHARACTERS:,} are allowed")
    refuse_hidden(head, "its front matter")
    try:
        return FrontMatter(_as_yaml(head), body)
    except _NotYaml as error:
        return FrontMatter(_by_line(head, str(error)), body, f"its front matter is no YAML ({error}): read by line")


def body_of(data: bytes) -> str:
    """What stands below the front matter. Raises BadRequest."""
    return _split(_text(data))[1]


def refuse_hidden(text: str, what: str) -> None:
    """Raises BadRequest when the text holds what cannot be seen."""
    for char in text:
        if unicodedata.category(char) == "Cc" and char not in "\t\n\r":
            raise BadRequest(f"{what} holds the control character U+{ord(char):04X}")
    if found := _HIDDEN.search(text):
        raise BadRequest(f"{what} holds the hidden character U+{ord(found[0]):04X}")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadRequest(f"it is no UTF-8 text (byte {error.start:,})") from None


def _split(text: str) -> tuple[str, str]:
    lines = text.split("\n")
    if not _FENCE.fullmatch(lines[0]):
        raise BadRequest("it has no front matter: its first line should be ---")
    for number, line in enumerate(lines[1:], start=1):
        if _FENCE.fullmatch(line):
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).lstrip("\n")
    raise BadRequest("its front matter does not end: a line --- is missing")


class _NotYaml(Exception):
    """The text means nothing as YAML. The message is short and says where."""


def _as_yaml(text: str) -> dict[str, Any]:
    import yaml  # a hundredth of a second, and with nothing changed nobody parses

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # where PyYAML was built without libyaml
    try:
        _check_shape(yaml, text, loader)
        node = yaml.compose(text, loader)
    except yaml.YAMLError as error:
        raise _NotYaml(_where(error)) from None
    value = {} if node is None else _plain(yaml, node)
    if not isinstance(value, dict):
        raise _NotYaml("it is no mapping")
    return value


def _check_shape(yaml: Any, text: str, loader: Any) -> None:
    """On the stream of events, before anything is built from it."""
    depth = nodes = 0
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BadRequest("its front matter has YAML anchors or aliases; write things out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > MAX_DEPTH:
            raise BadRequest(f"its front matter is nested more than {MAX_DEPTH} deep")
        if nodes > MAX_NODES:
            raise BadRequest(f"its front matter has more than {MAX_NODES:,} values")


def _plain(yaml: Any, node: Any) -> Any:
    """Text, lists and mappings, whatever tags say. The depth was checked before.

    No key twice: YAML leaves it to the reader which of them counts.
    """
    if isinstance(node, yaml.SequenceNode):
        return [_plain(yaml, each) for each in node.value]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    fields: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise BadRequest("its front matter has a key that is no plain text")
        if key.value in fields:
            raise BadRequest(f"its front matter has the key {key.value[:40]!r} twice")
        fields[key.value] = _plain(yaml, value)
    return fields


def _where(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", "") or "unreadable")
    return f"line {mark.line + 2}: {problem}" if mark else problem


def _by_line(text: str, why: str) -> dict[str, Any]:
    """`key: value` at the beginning of a line; indented lines belong to the value above."""
    fields: dict[str, list[str]] = {}
    last: list[str] | None = None
    for line in text.split("\n"):
        if found := _FIELD.fullmatch(line):
            if found[1] in fields:
                raise BadRequest(f"its front matter has the key {found[1][:40]!r} twice")
            last = fields[found[1]] = [found[2] or ""]
        elif line[:1] in (" ", "\t", "{", "}") and last is not None:
            last.append(line)
        elif line.strip() and not line.startswith("#"):
            raise BadRequest(f"its front matter cannot be read ({why})")
    return {key: _unquoted("\n".join(lines).strip()) for key, lines in fields.items()}


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
