"""What no call may change in the config."""

from __future__ import annotations

from typing import Any

import pytest

from palinurus.gateway.auth.protected_config import check_change
from palinurus.gateway.protocol import Refused

BEFORE: dict[str, Any] = {
    "gateway": {"auth": {"token": "abc"}, "port": 1},
    "mcp": {
        "servers": {
            "notes": {"command": "notes-server", "args": ["--quiet"]},
            "web": {"url": "http://x/"},
            "keyed": {"url": "http://x/", "headers": {"Authorization": "Bearer abcdef"}},
        }
    },
    "agents": {"defaults": {"workspace": "~/w"}, "entries": {"work": {"workspace": "~/work", "name": "Work"}}},
    "models": {"providers": {"p": {"baseUrl": "http://x/", "apiKey": {"source": "env", "id": "KEY"}}}},
    "tools": {"exec": {"security": "deny"}},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The config with one value set; None takes it away."""
    whole = {**BEFORE}
    at: Any = whole
    *steps, last = path.split("/")
    for step in steps:
        at[step] = {**at.get(step, {})}
        at = at[step]
    if value is None:
        at.pop(last, None)
    else:
        at[last] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("gateway/auth/token", "mine"),
        ("gateway/auth/mode", "none"),
        ("gateway/auth", None),
        ("gateway/bind", "lan"),
        ("gateway", None),
        ("gateway", {}),
        ("gateway", "nothing"),
        ("mcp/servers/notes/command", "evil"),
        ("mcp/servers/notes/args", ["--quiet", "--evil"]),
        ("mcp/servers/notes/args", []),
        ("mcp/servers/notes/env", {"LD_PRELOAD": "evil.so"}),
        ("mcp/servers/notes/cwd", "/"),
        ("mcp/servers/new", {"command": "evil"}),
        ("mcp", {"servers": {"new": {"command": "evil"}}}),
        ("models/providers/mock/oauth", {"tokenUrl": "http://127.0.0.1:9/token"}),
        ("models/providers/mock/oauth/tokenUrl", "https://example.org/token"),
        ("agents/defaults/workspace", "/"),
        ("agents/entries/new", {"workspace": "/"}),
        ("agents/list", [{"id": "a", "workspace": "/"}]),
        ("agents/defaults/sandbox", {"mode": "off"}),
        ("agents/defaults/sandbox", {"docker": {"image": "evil"}}),
        ("agents/entries/work", {"name": "Work", "workspace": "~/work", "tools": {"exec": {"security": "full"}}}),
        ("agent", {"workspace": "/"}),
        ("memory/search/extraPaths", ["/"]),
        ("memory/qmd", {"paths": [{"path": "/"}]}),
        ("agents/entries/work/memorySearch/extraPaths", ["/"]),
        ("agents/defaults/memory/search/extraPaths", [{"path": "/"}]),
        ("tools/exec/security", "full"),
        ("tools/exec", None),
        ("tools/exec/allowlist", ["rm"]),
        ("tools/exec/safeBins", ["bash"]),
        ("tools/elevated", {"enabled": True}),
        ("tools/fs", {"workspaceOnly": False}),
        ("tools/media", {"audio": {"models": [{"command": "evil", "args": []}]}}),
        ("env", {"vars": {"PATH": "/evil"}}),
        ("secrets", {"providers": {"x": {"source": "exec", "command": "evil"}}}),
        ("plugins", {"entries": {"evil": {"enabled": True}}}),
        ("hooks", {"enabled": True}),
        ("skills", {"load": {"extraDirs": ["/evil"]}}),
        ("browser", {"executablePath": "/evil"}),
        ("channels", {"signal": {"cliPath": "/evil"}}),
        ("logging", {"file": "/etc/passwd"}),
        ("$include", "/etc/passwd"),
        ("messages", {"$include": "/etc/passwd"}),
        ("models/providers/p/baseUrl", "http://evil/${ANTHROPIC_API_KEY}"),
        ("models/providers/p/apiKey", {"source": "file", "id": "/etc/passwd"}),
        ("models/providers/q", {"apiKey": {"source": "env", "id": "OTHER_KEY"}}),
        ("models/providers/p/baseUrl", "http://127.0.0.1:9/"),
        ("models/providers/openai", {"baseUrl": "http://127.0.0.1:9/"}),
        ("models/providers/OpenAI", {"baseUrl": "http://127.0.0.1:9/", "apiKey": "mine"}),
        ("mcp/servers/keyed/url", "http://y/"),
        ("mcp/servers/keyed/url", "http://x:81/"),
        ("models/providers/P", {"baseUrl": "http://127.0.0.1:9/"}),
        ("mcp/servers/keyed/url", "https://x/"),
        ("mcp/servers/keyed/url", "http://x@y/"),
        ("mcp/servers/keyed", {"url": "http://y/", "headers": {"X": "1", "Authorization": "Bearer abcdef"}}),
        ("skills/registry/url", "http://y/"),
        ("diagnostics/otel/endpoint", "http://y/"),
        ("tools/web", {"fetch": {"allowPrivate": ["127.0.0.1"]}}),
        ("agents/defaults/tools", {"sandbox": {"tools": {"allow": ["exec"]}}}),
    ],
)
def test_programs_their_surroundings_and_the_locks_are_not_changed_by_a_call(path: str, value: Any) -> None:
    with pytest.raises(Refused, match="cannot be set by a call") as refused:
        check_change(BEFORE, changed(path, value))
    assert refused.value.status == 403
    assert (refused.value.details or {})["code"] == "UNTOUCHABLE"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("agents/defaults/model", "p/large"),
        ("agents/entries/work/name", "Labour"),
        ("agents/entries/work", None),
        ("agents/entries/new", {"name": "New", "tools": {"profile": "minimal"}}),
        ("models/providers/p", {"baseUrl": "http://127.0.0.1:9/", "apiKey": "plain-key"}),
        ("models/providers/p", {"baseUrl": "http://127.0.0.1:9/"}),
        ("models/providers/p/api", "openai-completions"),
        ("mcp/servers/keyed", {"url": "http://x:80/other", "headers": {"Authorization": "Bearer abcdef"}}),
        ("mcp/servers/keyed", {"url": "http://y/", "headers": {"Authorization": "Bearer other"}}),
        ("mcp/servers/keyed", {"url": "http://y/"}),
        ("mcp/servers/keyed/url", None),
        ("models/providers/p/apiKey", "plain-key"),
        ("models/providers/q", {"baseUrl": "http://localhost:9/v1", "models": [{"id": "m"}]}),
        ("mcp/servers/notes", None),
        ("mcp/servers/notes/enabled", False),
        ("mcp/servers/web/url", "http://y/"),
        ("mcp", None),
        ("session", {"reset": {"mode": "daily"}}),
        ("commands", {"native": True}),
        ("tools/deny", ["exec"]),
        ("tools/web", {"search": {"enabled": False}}),
    ],
)
def test_the_rest_may_be_changed(path: str, value: Any) -> None:
    check_change(BEFORE, changed(path, value))


def test_no_change_is_no_harm() -> None:
    check_change(BEFORE, BEFORE)
    check_change({}, {})


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://localhost:11434/v1", True),
        ("https://collector.example/v1", False),
        ("http://127.0.0.1.example/v1", False),
        ("http://localhost@collector.example/", False),
    ],
)
def test_no_call_has_the_keys_of_this_machine_sent_elsewhere(address: str, may: bool) -> None:
    before: dict[str, Any] = {"models": {"providers": {"house": {"apiKey": "kept-kept"}}}}
    after: dict[str, Any] = {"models": {"providers": {"house": {"apiKey": "new-new", "baseUrl": address}}}}
    if may:
        check_change(before, after)
    else:
        with pytest.raises(Refused, match="would be sent"):
            check_change(before, after)
    check_change(after, before)
    kept = {"models": {"providers": {"house": {"apiKey": "kept-kept", "baseUrl": address}}}}
    with pytest.raises(Refused, match="would be sent"):
        check_change(before, kept)


def test_a_change_that_sends_a_secret_elsewhere_says_what_to_do() -> None:
    with pytest.raises(Refused, match=r"mcp\.servers\.keyed\.headers\.Authorization would be sent") as refused:
        check_change(BEFORE, changed("mcp/servers/keyed/url", "http://y/"))
    assert "send another mcp.servers.keyed.headers in the same change" in (refused.value.details or {})["hint"]
