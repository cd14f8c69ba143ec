"""What a SKILL.md says about itself: front matter of the AgentSkills convention and of OpenClaw, as one record.

Anybody may have written it, so its front matter must be short, flat and plain, or it is refused with a reason: no
anchors and aliases (a dozen lines of them expand to a billion), no depth, no key twice (two readers would see two
skills), no hidden characters. Every scalar is text; what `yes` or `1.0` mean is decided where it is used. Front
matter that is not YAML, usually because of a colon in a description, is read line by line.

OpenClaw's own part is under `metadata.openclaw`, as YAML or as a string of JSON5; `clawdbot` and `moltbot` are its
older names, `palinurus` is ours and comes first. What cannot be understood there is left out and remarked; a skill
is refused only when it has no usable name or description.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

from palinurus.domain.errors import BadRequest
from palinurus.skills.skill import MAX_NAME, Capabilities, Install, Kind, Requires, SkillManifest

MAX_CHARACTERS = 64 * 1024
MAX_DEPTH = 16
MAX_NODES = 4_000
_FENCE = re.compile(r"-{3,}[ \t]*")
_FIELD = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*)|)")
# Direction marks, joiners, and the tag block: characters that a person does not see and a model reads.
_HIDDEN = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e007f]")
MAX_DESCRIPTION = 4_096
MAX_LIST = 100
MAX_ITEM = 300
OURS, THEIRS = "palinurus", ("openclaw", "clawdbot", "moltbot")
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_PLATFORMS = {"macos": "darwin", "mac": "darwin", "osx": "darwin", "windows": "win32", "win": "win32"}
_KINDS: Mapping[str, Kind] = dict(zip(get_args(Kind), get_args(Kind), strict=True))
_PACKAGE_FIELDS = ("package", "formula", "module")
_HOST = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::\d{1,5})?", re.IGNORECASE)


class FrontMatter(NamedTuple):
    fields: dict[str, Any]
    body: str
    remark: str = ""  # remarks about unusual content


def read_front_matter(data: bytes) -> FrontMatter:
    """Returns the front matter. Raises BadRequest with the reason."""
    head, body = _split(_text(data))
    if len(head) > MAX_CHARACTERS:
        raise BadRequest(f"its front matter has {len(head):,} characters; {MAX_CHARACTERS:,} are allowed")
    refuse_hidden(head, "its front matter")
    try:
        return FrontMatter(_as_yaml(head), body)
    except _NotYaml as error:
        return FrontMatter(_by_line(head, str(error)), body, f"its front matter is not YAML ({error}): read by line")


def body_of(data: bytes) -> str:
    """Returns the text below the front matter. Raises BadRequest."""
    return _split(_text(data))[1]


def refuse_hidden(text: str, what: str) -> None:
    """Raises BadRequest if the text contains hidden characters."""
    for char in text:
        if unicodedata.category(char) == "Cc" and char not in "\t\n\r":
            raise BadRequest(f"{what} contains the control character U+{ord(char):04X}")
    if found := _HIDDEN.search(text):
        raise BadRequest(f"{what} contains the hidden character U+{ord(found[0]):04X}")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadRequest(f"it is not UTF-8 text (byte {error.start:,})") from None


def _split(text: str) -> tuple[str, str]:
    lines = text.split("\n")
    if not _FENCE.fullmatch(lines[0]):
        raise BadRequest("it has no front matter: its first line should be ---")
    for number, line in enumerate(lines[1:], start=1):
        if _FENCE.fullmatch(line):
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]).lstrip("\n")
    raise BadRequest("its front matter does not end: a line --- is missing")


class _NotYaml(Exception):
    """The text is not valid YAML. The message is short and says where."""


def _as_yaml(text: str) -> dict[str, Any]:
    import yaml  # parsing takes a hundredth of a second, and only when something has changed

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # PyYAML built without libyaml
    try:
        _check_shape(yaml, text, loader)
        node = yaml.compose(text, loader)
    except yaml.YAMLError as error:
        raise _NotYaml(_where(error)) from None
    value = {} if node is None else _plain_value(yaml, node)
    if not isinstance(value, dict):
        raise _NotYaml("it is not a mapping")
    return value


def _check_shape(yaml: Any, text: str, loader: Any) -> None:
    """Checks the event stream before anything is built from it."""
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


def _plain_value(yaml: Any, node: Any) -> Any:
    """Returns text, lists and mappings, whatever tags say. The depth was checked before.

    A key must not occur twice: YAML does not define which one counts.
    """
    if isinstance(node, yaml.SequenceNode):
        return [_plain_value(yaml, each) for each in node.value]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    fields: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise BadRequest("its front matter has a key that is not plain text")
        if key.value in fields:
            raise BadRequest(f"its front matter has the key {key.value[:40]!r} twice")
        fields[key.value] = _plain_value(yaml, value)
    return fields


def _where(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", "") or "unreadable")
    return f"line {mark.line + 2}: {problem}" if mark else problem


def _by_line(text: str, why: str) -> dict[str, Any]:
    """Reads `key: value` at the start of a line; indented lines belong to the value above."""
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


def read_manifest(data: bytes, folder_name: str) -> SkillManifest:
    """Returns the manifest in the bytes of a SKILL.md; a skill without a name is named after its folder. Raises
    BadRequest."""
    fields, _, remark = read_front_matter(data)
    notes = [remark] if remark else []
    metadata = _object(fields.get("metadata"), "metadata", notes)
    own = own_metadata(metadata, notes)
    requires = _object(own.get("requires"), "requires", notes)
    return SkillManifest(
        name=_name(_plain(fields.get("name")) or folder_name),
        description=_description(fields.get("description")),
        homepage=_plain(fields.get("homepage")) or _plain(own.get("homepage")),
        version=_plain(fields.get("version")) or _plain(metadata.get("version")),
        license=_plain(fields.get("license")),
        compatibility=_plain(fields.get("compatibility")),
        allowed_tools=" ".join(_words(fields.get("allowed-tools"))),
        user_invocable=_truth(fields.get("user-invocable"), True),
        model_invocable=not _truth(fields.get("disable-model-invocation"), False),
        dispatch_tool=_dispatch(fields, notes),
        always=_truth(own.get("always"), False),
        emoji=_plain(own.get("emoji"))[:16],
        key=_plain(own.get("skillKey")),
        primary_env=_plain(own.get("primaryEnv")),
        os=tuple(_platform(each) for each in _words(own.get("os"))),
        requires=Requires(*(_words(requires.get(name)) for name in ("bins", "anyBins", "env", "config"))),
        install=tuple(_installs(own.get("install"), notes)),
        capabilities=_capabilities(fields, own, notes),
        remarks=tuple(notes),
    )


def own_metadata(metadata: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    """Returns what `metadata` says under our name or OpenClaw's; ours comes first."""
    ours = _object(metadata.get(OURS), f"metadata.{OURS}", notes)
    theirs = next((_object(metadata[name], name, notes) for name in THEIRS if name in metadata), {})
    return {**theirs, **ours}


def read_more(data: bytes, *names: str) -> tuple[tuple[str, ...], ...]:
    """Returns further keys of the metadata as lists of words: those of a HOOK.md, which is written like a SKILL.md."""
    notes: list[str] = []
    own = own_metadata(_object(read_front_matter(data).fields.get("metadata"), "metadata", notes), notes)
    return tuple(_words(own.get(name)) for name in names)


def _name(name: str) -> str:
    refuse_hidden(name, "its name")
    if "/" in name or "\\" in name or name.startswith(".") or "\n" in name:
        raise BadRequest(f"its name {name[:MAX_NAME]!r} is a path, not a name")
    if len(name) > MAX_NAME:
        raise BadRequest(f"its name has {len(name)} characters; {MAX_NAME} are allowed")
    if not any(char.isalnum() for char in name):
        raise BadRequest(f"its name {name!r} contains neither a letter nor a digit")
    return name


def _description(value: Any) -> str:
    text = " ".join(_plain(value).split())
    if not text:
        raise BadRequest("it has no description that says when to use it")
    refuse_hidden(text, "its description")
    if len(text) > MAX_DESCRIPTION:
        raise BadRequest(f"its description has {len(text):,} characters; {MAX_DESCRIPTION:,} are allowed")
    return text


def _object(value: Any, what: str, notes: list[str]) -> Mapping[str, Any]:
    """Returns a mapping, or a string that contains one as JSON5."""
    if isinstance(value, str) and value.strip():
        import pyjson5

        try:
            value = pyjson5.decode(value, maxdepth=32)
        except (pyjson5.Json5DecoderException, RecursionError, ValueError):
            notes.append(f"its {what} is not JSON and was not read")
            return {}
    if value in (None, ""):
        return {}
    if not isinstance(value, dict):
        notes.append(f"its {what} is not an object and was not read")
        return {}
    return value


def _plain(value: Any) -> str:
    """Returns one line of text; empty for other values."""
    return "" if isinstance(value, bool | dict | list | None) else str(value).strip()


def _truth(value: Any, otherwise: bool) -> bool:
    if isinstance(value, bool):
        return value
    word = _plain(value).lower()
    return True if word in _TRUE else False if word in _FALSE else otherwise


def _words(value: Any) -> tuple[str, ...]:
    """Returns a list of texts; a single text is split into words."""
    items = value if isinstance(value, list) else _plain(value).replace(",", " ").split()
    cleaned = (_plain(each)[:MAX_ITEM] for each in items[:MAX_LIST])
    return tuple(each for each in cleaned if each)


def _platform(name: str) -> str:
    return _PLATFORMS.get(name.lower(), name.lower())


def _dispatch(fields: Mapping[str, Any], notes: list[str]) -> str:
    """Returns the tool of its slash command; empty if a model answers that."""
    if _plain(fields.get("command-dispatch")) != "tool":
        return ""
    tool = _plain(fields.get("command-tool"))
    if not tool:
        notes.append("its command-dispatch names no command-tool")
    mode = _plain(fields.get("command-arg-mode"))
    if mode not in ("", "raw"):
        notes.append(f"its command-arg-mode {mode!r} is unknown; raw is used")
    return tool


def _installs(value: Any, notes: list[str]) -> Iterator[Install]:
    for each in value[:MAX_LIST] if isinstance(value, list) else ():
        if not isinstance(each, dict):
            notes.append("one of its install specs is not an object")
            continue
        named = _plain(each.get("kind")).lower()
        kind = _KINDS.get(named)
        if kind is None:
            notes.append(f"its install kind {named[:40]!r} is unknown")
            continue
        yield Install(
            kind=kind,
            id=_plain(each.get("id")),
            label=" ".join(_plain(each.get("label")).split())[:MAX_ITEM],
            bins=_words(each.get("bins")),
            os=tuple(_platform(name) for name in _words(each.get("os"))),
            package=next((found for name in _PACKAGE_FIELDS if (found := _plain(each.get(name)))), ""),
            url=_plain(each.get("url")),
            sha256=_plain(each.get("sha256")).lower(),
            archive=_plain(each.get("archive")),
            extract=_truth(each.get("extract"), False),
            strip_components=_count(each.get("stripComponents")),
            target_dir=_plain(each.get("targetDir")),
        )


def _count(value: Any) -> int:
    text = _plain(value)
    return min(int(text), 10) if text.isascii() and text.isdigit() and len(text) < 4 else 0


def _capabilities(fields: Mapping[str, Any], own: Mapping[str, Any], notes: list[str]) -> Capabilities:
    """Reads `capabilities` from the front matter or the metadata.

    A declaration that cannot be understood allows nothing.
    """
    value = fields.get("capabilities", own.get("capabilities"))
    if value is None:
        return Capabilities()
    declared = _object(value, "capabilities", notes)
    if not declared:
        return Capabilities(tools=())
    return Capabilities(
        tools=_words(declared["tools"]) if "tools" in declared else None,
        hosts=_hosts(declared["hosts"], notes) if "hosts" in declared else None,
        paths=_paths(declared["paths"], notes) if "paths" in declared else None,
    )


def _hosts(value: Any, notes: list[str]) -> tuple[str, ...]:
    hosts = _words(value)
    notes += [f"{each[:60]!r} in its capabilities is not a host" for each in hosts if not _HOST.fullmatch(each)]
    return tuple(each.lower() for each in hosts if _HOST.fullmatch(each))


def _paths(value: Any, notes: list[str]) -> tuple[str, ...]:
    paths = [_plain(each)[:MAX_ITEM] for each in (value if isinstance(value, list) else [value])]
    inside = [each for each in paths if each and each[0] not in "/~" and ".." not in each.split("/")]
    outside = (each for each in paths if each not in inside)
    notes += [f"{each[:60]!r} in its capabilities is not a path inside the workspace" for each in outside]
    return tuple(inside)
