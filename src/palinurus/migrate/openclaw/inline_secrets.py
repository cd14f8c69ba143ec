"""Which settings of a foreign config hold a secret themselves, rather than say where one is.

More counts as one here than where a config is shown: what is not carried over can still be set by hand, and what was
copied into a second file without need cannot be called back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from palinurus.config.secrets import PLACEHOLDERS, Redactor, is_secret_name, secret_values, worth_redacting
from palinurus.config.source import JsonPath
from palinurus.migrate.openclaw.settings import Setting

_NAMED = re.compile(r"(?<!\$)\$\{[A-Z_][A-Z0-9_]*\}")
_SCHEME = re.compile(r"\s*(?:bearer|basic|token)?\s*", re.IGNORECASE)
_VARIABLE = re.compile(r"(?:^|_)(?:KEY|PAT|PWD|PASS|AUTH|CREDENTIALS?|COOKIE|DSN|SIGNATURE)(?:_|$)", re.IGNORECASE)
_IN_ADDRESS = re.compile(
    r"://[^/?#\s:]*:[^/?#\s]*@|[?&][^=&#\s]{0,100}(?:token|key|secret|passw|auth|sig)[^=&#\s]{0,100}=[^&#\s]",
    re.IGNORECASE,
)
_FLAG = re.compile(r"-{1,2}([A-Za-z][\w-]*)(=.+)?", re.DOTALL)
_CONTAINERS = ("headers", "env")  # whatever has a name there may be a key


def secrets_in(data: Any, settings: Iterable[Setting]) -> Redactor:
    """Knows every secret of the config by its value, so that it is found where nobody expects it, too."""
    known = set(secret_values(data))
    for setting in settings:
        if holds_secret(setting, Redactor()):
            known.update(value for text in _texts(setting.value) for value in worth_redacting(text))
    return Redactor(known)


def holds_secret(setting: Setting, redactor: Redactor) -> bool:
    path, value = setting.into, setting.value
    if any(redactor.redact(step) != step for step in path if isinstance(step, str)):
        return True
    texts = [text for text in _texts(value) if not _says_where(text)]
    if any(redactor.redact(text) != text or _IN_ADDRESS.search(text) for text in texts) or _has_flag(value):
        return True
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    if _is_number(value):
        return is_secret_name(name) and "tokens" not in name.lower() and path[:2] == ("skills", "entries")
    return bool(texts) and _names_one(path, name)


def _names_one(path: JsonPath, name: str) -> bool:
    if is_secret_name(name):
        return True
    if path[:1] == ("env",) or "sandbox" in path:
        return _VARIABLE.search(name) is not None
    if any(step in _CONTAINERS for step in path[:-1]):
        return path[-2] in _CONTAINERS or name not in ("source", "provider", "id")  # those of a reference
    return path[:2] == ("skills", "entries") and any(is_secret_name(str(step)) for step in path[4:])


def _says_where(text: str) -> bool:
    """Whether nothing but names of variables is in it, or a word that local servers want to hear."""
    bare = _NAMED.sub("", text)
    return not bare.strip() or (bare != text and _SCHEME.fullmatch(bare) is not None) or text.strip() in PLACEHOLDERS


def _has_flag(value: Any) -> bool:
    """Whether arguments of a command hold a secret: `--token=x`, or `--token` and then `x`."""
    if not isinstance(value, list):
        return False
    following = False
    for item in value:
        text = item if isinstance(item, str) else ""
        flag = _FLAG.fullmatch(text)
        if following and text and not flag and not _says_where(text):
            return True
        following = flag is not None and is_secret_name(flag[1])
        if following and flag is not None and flag[2]:
            if not _says_where(flag[2][1:]):
                return True
            following = False
    return False


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
