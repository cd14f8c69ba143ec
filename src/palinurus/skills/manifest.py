"""What a SKILL.md says about itself: front matter of the AgentSkills convention and of OpenClaw, as one record.

OpenClaw's own part stands under `metadata.openclaw`, which may be YAML or a string of JSON5; `clawdbot` and `moltbot`
are its older names, `palinurus` is ours and comes first. What cannot be understood in it costs that one thing and is
remarked; a skill is refused only when it has no usable name or description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from palinurus.domain.errors import BadRequest
from palinurus.skills.front_matter import FrontMatter, read_front_matter, refuse_hidden
from palinurus.skills.skill import MAX_NAME, Capabilities, Install, Kind, Manifest, Requires

MAX_DESCRIPTION = 4_096
MAX_LIST = 100
MAX_ITEM = 300
OURS, THEIRS = "palinurus", ("openclaw", "clawdbot", "moltbot")
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_PLATFORMS = {"macos": "darwin", "mac": "darwin", "osx": "darwin", "windows": "win32", "win": "win32"}
_KINDS: Mapping[str, Kind] = {kind: kind for kind in get_args(Kind)}
_PACKAGE_FIELDS = ("package", "formula", "module")
_HOST = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::\d{1,5})?", re.IGNORECASE)


def read_manifest(data: bytes, folder_name: str) -> Manifest:
    """The manifest in the bytes of a SKILL.md; a skill without a name is called like its folder. Raises BadRequest."""
    return manifest_of(read_front_matter(data), folder_name)


def manifest_of(matter: FrontMatter, folder_name: str) -> Manifest:
    fields = matter.fields
    notes = [matter.remark] if matter.remark else []
    metadata = _object(fields.get("metadata"), "metadata", notes)
    ours = _object(metadata.get(OURS), f"metadata.{OURS}", notes)
    theirs = next((_object(metadata[name], name, notes) for name in THEIRS if name in metadata), {})
    said = {**theirs, **ours}
    requires = _object(said.get("requires"), "requires", notes)
    return Manifest(
        name=_name(_plain(fields.get("name")) or folder_name),
        description=_description(fields.get("description")),
        homepage=_plain(fields.get("homepage")) or _plain(said.get("homepage")),
        version=_plain(fields.get("version")) or _plain(metadata.get("version")),
        license=_plain(fields.get("license")),
        compatibility=_plain(fields.get("compatibility")),
        allowed_tools=" ".join(_words(fields.get("allowed-tools"))),
        user_invocable=_truth(fields.get("user-invocable"), True),
        model_invocable=not _truth(fields.get("disable-model-invocation"), False),
        dispatch_tool=_dispatch(fields, notes),
        always=_truth(said.get("always"), False),
        emoji=_plain(said.get("emoji"))[:16],
        key=_plain(said.get("skillKey")),
        primary_env=_plain(said.get("primaryEnv")),
        os=tuple(_platform(each) for each in _words(said.get("os"))),
        requires=Requires(
            bins=_words(requires.get("bins")),
            any_bins=_words(requires.get("anyBins")),
            env=_words(requires.get("env")),
            config=_words(requires.get("config")),
        ),
        install=tuple(_installs(said.get("install"), notes)),
        capabilities=_capabilities(fields, said, notes),
        remarks=tuple(notes),
    )


def _name(name: str) -> str:
    refuse_hidden(name, "its name")
    if "/" in name or "\\" in name or name.startswith(".") or "\n" in name:
        raise BadRequest(f"its name {name[:MAX_NAME]!r} is a path, not a name")
    if len(name) > MAX_NAME:
        raise BadRequest(f"its name has {len(name)} characters; {MAX_NAME} are allowed")
    if not any(char.isalnum() for char in name):
        raise BadRequest(f"its name {name!r} holds neither letter nor digit")
    return name


def _description(value: Any) -> str:
    text = " ".join(_plain(value).split())
    if not text:
        raise BadRequest("it has no description: nobody could tell when to use it")
    refuse_hidden(text, "its description")
    if len(text) > MAX_DESCRIPTION:
        raise BadRequest(f"its description has {len(text):,} characters; {MAX_DESCRIPTION:,} are allowed")
    return text


def _object(value: Any, what: str, notes: list[str]) -> Mapping[str, Any]:
    """A mapping, or a string that holds one as JSON5."""
    if isinstance(value, str) and value.strip():
        import pyjson5

        try:
            value = pyjson5.decode(value, maxdepth=32)
        except (pyjson5.Json5DecoderException, RecursionError, ValueError):
            notes.append(f"its {what} is no JSON and was not read")
            return {}
    if value in (None, ""):
        return {}
    if not isinstance(value, dict):
        notes.append(f"its {what} is no object and was not read")
        return {}
    return value


def _plain(value: Any) -> str:
    """One line of text; nothing for what is none."""
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        return ""
    return str(value).strip()


def _truth(value: Any, otherwise: bool) -> bool:
    if isinstance(value, bool):
        return value
    word = _plain(value).lower()
    return True if word in _TRUE else False if word in _FALSE else otherwise


def _words(value: Any) -> tuple[str, ...]:
    """A list of texts; one text counts as a list of the words in it."""
    items = value if isinstance(value, list) else _plain(value).replace(",", " ").split()
    cleaned = (_plain(each)[:MAX_ITEM] for each in items[:MAX_LIST])
    return tuple(each for each in cleaned if each)


def _platform(name: str) -> str:
    return _PLATFORMS.get(name.lower(), name.lower())


def _dispatch(fields: Mapping[str, Any], notes: list[str]) -> str:
    """The tool behind its slash command; empty when a model answers that."""
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
            notes.append("one of its install specs is no object")
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


def _capabilities(fields: Mapping[str, Any], said: Mapping[str, Any], notes: list[str]) -> Capabilities:
    """From `capabilities`, in the front matter itself or in the metadata.

    What is said and makes no sense narrows to nothing: a wish that was not understood must not become freedom.
    """
    value = fields.get("capabilities", said.get("capabilities"))
    if value is None:
        return Capabilities()
    wished = _object(value, "capabilities", notes)
    if not wished:
        return Capabilities(tools=())
    return Capabilities(
        tools=_words(wished["tools"]) if "tools" in wished else None,
        hosts=tuple(_hosts(wished["hosts"], notes)) if "hosts" in wished else None,
        paths=tuple(_paths(wished["paths"], notes)) if "paths" in wished else None,
    )


def _hosts(value: Any, notes: list[str]) -> Iterator[str]:
    for host in _words(value):
        if _HOST.fullmatch(host):
            yield host.lower()
        else:
            notes.append(f"{host[:60]!r} in its capabilities is no host")


def _paths(value: Any, notes: list[str]) -> Iterator[str]:
    for path in value if isinstance(value, list) else [_plain(value)]:
        text = _plain(path)[:MAX_ITEM]
        if text and not text.startswith(("/", "~")) and ".." not in text.split("/"):
            yield text
        else:
            notes.append(f"{text[:60]!r} in its capabilities is no path inside the workspace")
