"""Checks whether a tool call stays within the hosts and files that a restriction names. Pure; the gate calls it.

Arguments are recognised by name, which is the same in all built-in tools: `url` is an address, `path` a file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from palinurus.domain.tool import Restriction

FILE_TOOLS = frozenset({"read", "write", "edit", "delete", "ls", "grep", "find", "memory_get"})
UNSEEN_PATHS = frozenset({"apply_patch"})  # these tools name files inside a text that only they can parse


def beyond(restrictions: Iterable[Restriction], tool: str, arguments: Mapping[str, Any]) -> str:
    """Why a restriction forbids this call, starting with who set it; empty if the call is allowed."""
    for each in restrictions:
        about = f"{each.source}: {each.reason}"
        if each.hosts is not None and "url" in arguments and not _is_host(each.hosts, str(arguments["url"])):
            return f"{about} (of hosts only {', '.join(each.hosts) or 'none'})"
        if each.paths is None:
            continue
        if tool in UNSEEN_PATHS:
            return f"{about} (only certain paths, to which {tool} cannot be held)"
        if tool in FILE_TOOLS and not _is_below(each.paths, _path(arguments)):
            return f"{about} (of paths only {', '.join(each.paths) or 'none'})"
    return ""


def _path(arguments: Mapping[str, Any]) -> str:
    return str(arguments.get("path") or ".").partition("#")[0]


def _is_host(hosts: Iterable[str], url: str) -> bool:
    try:
        parts = urlsplit(url)
        name, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return False
    for host in hosts:
        wanted, _, wanted_port = host.partition(":")
        fits = name == wanted or (wanted.startswith("*.") and (name == wanted[2:] or name.endswith(wanted[1:])))
        if name and fits and (not wanted_port or wanted_port == str(port or _usual(parts.scheme))):
            return True
    return False


def _usual(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _is_below(places: Iterable[str], path: str) -> bool:
    place = posixpath.normpath(path)
    return any(
        place == each or each == "." or place.startswith(f"{each.rstrip('/')}/")
        for each in places
        if each != "." or (not place.startswith("/") and place.partition("/")[0] != "..")
    )
