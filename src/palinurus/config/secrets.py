"""Take secrets out of text before it is written: the configured ones by value, the others by their shape.

The Redactor runs on every message we store, so text without secrets must pass quickly: a pattern is tried only when
the fixed letters it needs are there, which is a substring search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

MARKER = "[redacted]"
MASK = "***"
MIN_SECRET = 8  # shorter values would take ordinary words out of the text

# Stand-ins that local model servers ask for; they are no secrets, and words of ordinary talk.
PLACEHOLDERS = frozenset({"lm-studio", "ollama-local", "not-needed", "no-key-needed", "placeholder"})

SECRET_NAME = re.compile(
    r"token(?!iz)|password|passwd|passphrase|secret|api[-_]?key|private[-_]?key|authorization", re.IGNORECASE
)
POINTER_NAME = re.compile(r"(?:env|file|path|ref)$", re.IGNORECASE)  # tokenFile names a place, it holds no secret

# Below these a name is anybody's choice: there a value is a secret by more names, and by looking like one.
CONTAINERS = frozenset({"headers", "env", "vars"})
_KEY_NAME = re.compile(r"key|pass|pwd|auth|credential|cookie|signature|(?:^|[-_])(?:pat|dsn)(?:$|[-_])", re.IGNORECASE)
_PIECE = re.compile(r"[A-Za-z0-9+/=]{8,}")
_LETTER_AND_DIGIT = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])")
_IN_ADDRESS = re.compile(r"(?<=://)([^/?#\s:@]{0,200}):([^/?#\s@]{1,500})(?=@)")  # user:password

# A whole block; or, when its end was cut off, as many lines as look like key material.
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
    # Our own gateway's, and Google's. Where one ends another may begin, so a chain of them is taken out at once:
    # one in each round would be as many rounds as there are keys.
    (("pal_", "AIza"), r"(?<![A-Za-z0-9])(?:pal_[A-Za-z0-9_-]{43}|AIza[A-Za-z0-9_-]{35})+"),
    (("AKIA", "ASIA"), r"(?<![A-Za-z0-9])A(?:K|S)IA[A-Z0-9]{16}(?![A-Za-z0-9])"),  # AWS
    ((":AA",), r"(?<!\d)\d{6,12}:AA[A-Za-z0-9_-]{32,}"),  # Telegram bots
    (("eyJ",), r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),  # JSON web tokens
    (("earer ",), r"(?<=[Bb]earer )(?=[A-Za-z._~+/=-]{0,60}+\d)[A-Za-z0-9._~+/=-]{20,}"),
)
_PATTERNS = tuple((hints, re.compile(shape)) for hints, shape in _SHAPES)


class Redactor:
    """Replaces secrets by `[redacted]`. Redacting twice gives what redacting once gave."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {value for value in secrets if len(value) >= MIN_SECRET}
        # As it looks inside JSON text, which writes letters beyond ASCII either escaped or as they are.
        values |= {json.dumps(value, ensure_ascii=escaped)[1:-1] for value in values for escaped in (True, False)}
        self._values = sorted(values, key=lambda value: (-len(value), value))

    def redact(self, text: str) -> str:
        """The text without secrets, the same object when there are none. Never raises."""
        # Taking one secret out can lay another one bare (`sk-…` glued behind a password), so go on until nothing
        # changes. Every round leaves fewer characters outside the markers, so the rounds come to an end.
        while True:
            cleaned = self._once(text)
            if cleaned == text:
                return text
            text = cleaned

    def redact_value(self, value: Any) -> Any:
        """The same for JSON data: every string in it, the keys included."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {self.redact_value(key): self.redact_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_value(item) for item in value]
        return value

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
    """Whether a key of the config or of the environment holds a secret, going by its name."""
    return bool(SECRET_NAME.search(name)) and not POINTER_NAME.search(name)


def mask(value: Any, name: str = "", container: str = "") -> Any:
    """Config data fit to be shown: what is a secret becomes `***`; `${NAME}` may be seen."""
    if isinstance(value, dict):
        return {key: mask(item, str(key), name) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item, name, container) for item in value]
    if not isinstance(value, str) or not value or is_reference(value):
        return value
    return MASK if _is_secret(value, name, container) else _IN_ADDRESS.sub(rf"\1:{MASK}", value)


def secret_values(value: Any, name: str = "", container: str = "") -> Iterable[str]:
    """Every string of the config data that must be redacted by value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from secret_values(item, str(key), name)
    elif isinstance(value, list):
        for item in value:
            yield from secret_values(item, name, container)
    elif isinstance(value, str) and not is_reference(value):
        for found in _IN_ADDRESS.finditer(value):
            yield from worth_redacting(found[2])
        if _is_secret(value, name, container):
            yield from worth_redacting(value)


def _is_secret(value: str, name: str, container: str) -> bool:
    if is_secret_name(name):
        return True
    if container not in CONTAINERS or POINTER_NAME.search(name) or value.startswith(("/", "~", ".")) or "://" in value:
        return False
    return bool(_KEY_NAME.search(name)) or (
        len(value) >= 16 and any(_LETTER_AND_DIGIT.match(piece) for piece in _PIECE.findall(value))
    )


def worth_redacting(value: str) -> Iterable[str]:
    """The secret in a value, if it is long enough to be one: `Bearer x` counts as `x`."""
    bare = value.strip().removeprefix("Bearer ").strip()
    if len(bare) >= MIN_SECRET and bare not in PLACEHOLDERS:
        yield bare


def is_reference(text: str) -> bool:
    """Whether the text is `${NAME}`: it says where a secret is, and is none."""
    return bool(variable_named(text))


def variable_named(text: str) -> str:
    """The NAME of `${NAME}`; empty for any other text."""
    found = re.fullmatch(r"\$\{([A-Z_][A-Z0-9_]*)\}", text)
    return found[1] if found else ""
