"""Redacts secrets in text before it is stored, and in a config before it is shown.

The Redactor knows the configured secrets by value and others by their pattern. It runs on every message we store, so
text without secrets must pass quickly: a pattern is tried only if its fixed letters are there, which is a substring
search. A config is shown with marks in place of its secrets (`hide`). When a mark is sent back, the old value stays
(`restore`); an ambiguous mark is refused, so no secret moves to another place. A stored secret is bound to the address
that it is sent to (`origin_of`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from palinurus.config.source import JsonPath, format_path, last_name, map_strings, strings
from palinurus.domain.errors import BadRequest

MARKER = "[redacted]"
MASK = "***"
MIN_SECRET = 8  # shorter values would match ordinary words

# Placeholders that local model servers require; they are not secrets but ordinary words.
PLACEHOLDERS = frozenset({"lm-studio", "ollama-local", "not-needed", "no-key-needed", "placeholder"})
SECRET_NAME = re.compile(
    r"token(?!iz)|password|passwd|passphrase|secret|api[-_]?key|private[-_]?key|authorization", re.IGNORECASE
)

POINTER_NAME = re.compile(r"(?:env|file|path|ref)$", re.IGNORECASE)  # tokenFile is a path, not a secret

# Below these keys the user chooses the names: more names count as secret there, and values that look like one.
CONTAINERS = frozenset({"headers", "env", "vars"})
_KEY_NAME = re.compile(r"key|pass|pwd|auth|credential|cookie|signature|(?:^|[-_])(?:pat|dsn)(?:$|[-_])", re.IGNORECASE)
_PIECE = re.compile(r"[A-Za-z0-9+/=]{8,}")
_LETTER_AND_DIGIT = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])")
_IN_ADDRESS = re.compile(r"(?<=://)([^/?#\s:@]{0,200}):([^/?#\s@]{1,500})(?=@)")  # user:password

# A whole block; or, if its end is missing, as many lines as look like key material.
_PEM = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"
    r"(?:(?:(?!-----)[\s\S]){0,20000}-----END [A-Z0-9 ]*PRIVATE KEY-----|(?:(?:\s|\\[rn])*[A-Za-z0-9+/=]{32,})+)"
)

_SHAPES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("PRIVATE KEY-----",), _PEM),
    (("sk-",), r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]{0,60}+\d)[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic, OpenRouter
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{30,}"),
    (("github_pat_",), r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{30,}"),
    (("xox", "xapp-"), r"(?<![A-Za-z0-9])(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),  # Slack
    # Our own gateway's, and Google's. They may follow each other without a gap, so a chain of them is removed at once:
    # otherwise there would be one round per key.
    (("pal_", "AIza"), r"(?<![A-Za-z0-9])(?:pal_[A-Za-z0-9_-]{43}|AIza[A-Za-z0-9_-]{35})+"),
    (("AKIA", "ASIA"), r"(?<![A-Za-z0-9])A(?:K|S)IA[A-Z0-9]{16}(?![A-Za-z0-9])"),  # AWS
    ((":AA",), r"(?<!\d)\d{6,12}:AA[A-Za-z0-9_-]{32,}"),  # Telegram bots
    (("eyJ",), r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),  # JSON web tokens
    (("earer ",), r"(?<=[Bb]earer )(?=[A-Za-z._~+/=-]{0,60}+\d)[A-Za-z0-9._~+/=-]{20,}"),
)

_PATTERNS = tuple((hints, re.compile(shape)) for hints, shape in _SHAPES)


class Redactor:
    """Replaces secrets by `[redacted]`. Redacting twice gives the same as redacting once."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {value for value in secrets if len(value) >= MIN_SECRET}
        # As in JSON text, which writes non-ASCII letters either escaped or not.
        values |= {json.dumps(value, ensure_ascii=escaped)[1:-1] for value in values for escaped in (True, False)}
        self._values = sorted(values, key=lambda value: (-len(value), value))

    def redact(self, text: str) -> str:
        """The text without secrets, the same object if there are none. Never raises."""
        # Removing one secret can expose another one (`sk-…` directly after a password), so repeat until nothing
        # changes. Every round leaves fewer characters outside the markers, so the loop ends.
        while True:
            cleaned = self._once(text)
            if cleaned == text:
                return text
            text = cleaned

    def redact_value(self, value: Any) -> Any:
        """The same for JSON data: every string in it, including keys."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {self.redact_value(key): self.redact_value(item) for key, item in value.items()}
        return [self.redact_value(item) for item in value] if isinstance(value, list | tuple) else value

    def _once(self, text: str) -> str:
        if MARKER in text:  # a marker is never part of a secret
            return MARKER.join(self._clean(part) for part in text.split(MARKER))
        return self._clean(text)

    def _clean(self, text: str) -> str:
        for hints, pattern in _PATTERNS:
            for hint in hints:
                if hint in text:
                    text = pattern.sub(MARKER, text)
                    break
        for value in self._values:
            if value in text:
                text = MARKER.join(part.replace(value, MARKER) for part in text.split(MARKER))
        return text


def is_secret_name(name: str) -> bool:
    """Whether a key of the config or the environment holds a secret, by its name."""
    return bool(SECRET_NAME.search(name)) and not POINTER_NAME.search(name)


def mask(value: Any, path: JsonPath = ()) -> Any:
    """Config data at a path for display: secrets become `***`; `${NAME}` stays."""
    return map_strings(value, _masked, path)


def _masked(text: str, path: JsonPath) -> str:
    if not text or is_reference(text):
        return text
    return MASK if _is_secret(text, path) else _IN_ADDRESS.sub(rf"\1:{MASK}", text)


def secret_values(value: Any) -> Iterable[str]:
    """Every string of the config data that must be redacted by value."""
    for path, text in strings(value):
        if not is_reference(text):
            found = [match[2] for match in _IN_ADDRESS.finditer(text)]
            for each in [*found, text] if _is_secret(text, path) else found:
                yield from worth_redacting(each)


def _is_secret(value: str, path: JsonPath) -> bool:
    container, name = ("", "", *(step for step in path if isinstance(step, str)))[-2:]
    if is_secret_name(name):
        return True
    if container not in CONTAINERS or POINTER_NAME.search(name) or value.startswith(("/", "~", ".")) or "://" in value:
        return False
    return bool(_KEY_NAME.search(name)) or (
        len(value) >= 16 and any(_LETTER_AND_DIGIT.match(piece) for piece in _PIECE.findall(value))
    )


def worth_redacting(value: str) -> Iterable[str]:
    """The secret in a value, if it is long enough: `Bearer x` counts as `x`."""
    bare = value.strip().removeprefix("Bearer ").strip()
    if len(bare) >= MIN_SECRET and bare not in PLACEHOLDERS:
        yield bare


def is_reference(text: str) -> bool:
    """Whether the text is `${NAME}`, which refers to a secret and is none."""
    return bool(variable_named(text))


def variable_named(text: str) -> str:
    """The NAME of `${NAME}`; empty for any other text."""
    found = re.fullmatch(r"\$\{([A-Z_][A-Z0-9_]*)\}", text)
    return found[1] if found else ""


MARKS = (MASK, "__OPENCLAW_REDACTED__")  # the second form is sent by pages and programs made for OpenClaw
_NOTHING = object()
Redact = Callable[[str], str]
"""Returns a text without secrets; the same text if it holds none."""


def hidden(value: Any, redact: Redact) -> Iterator[JsonPath]:
    """The paths of all strings that must not be shown."""
    return (path for path, text in strings(value) if _must_hide(text, path, redact))


def hide(value: Any, redact: Redact, path: JsonPath = ()) -> Any:
    """The data with marks in place of secrets."""
    return map_strings(value, lambda text, at: MASK if _must_hide(text, at, redact) else text, path)


def restore(value: Any, old: Any, redact: Redact, path: JsonPath = ()) -> Iterator[tuple[JsonPath, str]]:
    """For every mark in the data its path and the old value that stays there. Raises BadRequest for an invalid mark."""
    if isinstance(value, dict):
        for key, item in value.items():
            before = old.get(key, _NOTHING) if isinstance(old, dict) else _NOTHING
            yield from restore(item, before, redact, (*path, key))
    elif isinstance(value, list):
        known = old if isinstance(old, list) else []
        for index, item in enumerate(value):
            yield from restore(item, _counterpart(item, index, known, path, redact), redact, (*path, index))
    elif value in MARKS:
        if not isinstance(old, str):
            raise BadRequest(
                f"{format_path(path)} is {value}, and there is no earlier value to keep", hint="send the value itself"
            )
        yield path, old


def _counterpart(item: Any, index: int, known: list[Any], path: JsonPath, redact: Redact) -> Any:
    """The matching element of the old list. Elements move, so the index alone is not enough."""
    if isinstance(item, dict) and isinstance(item.get("id"), str):
        return next((each for each in known if isinstance(each, dict) and each.get("id") == item["id"]), _NOTHING)
    shown = map_strings(item, lambda text, _: MASK if text in MARKS else text)  # with one kind of mark
    alike = [at for at, each in enumerate(known) if hide(each, redact, path) == shown]
    if index in alike:
        return known[index]
    return known[alike[0]] if len(alike) == 1 else _NOTHING


def _must_hide(value: str, path: JsonPath, redact: Redact) -> bool:
    shown = not value or is_reference(value)
    return not shown and (is_secret_name(last_name(path)) or redact(value) != value)


_PORTS = {"http": 80, "https": 443}


def origin_of(address: Any) -> str:
    """The origin, such as `https://host:443`; the text itself if it names no host; empty if it is not text."""
    from urllib.parse import urlsplit

    if not isinstance(address, str):
        return ""
    text = address.strip()
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return text
    return f"{parts.scheme}://{parts.hostname}:{port}" if parts.hostname and "${" not in text else text
