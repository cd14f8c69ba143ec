"""A foreign config that says something about nearly everything, and a planner to carry it over."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palinurus.config.agents import default_agent
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, load_text
from palinurus.extensions.migrate.foreign import ForeignAgent
from palinurus.extensions.migrate.openclaw.config_plan import ConfigPlan, ConfigPlanner, Ours
from palinurus.extensions.migrate.openclaw.config_rules import PathMoves

ROOT = Path("/srv/.openclaw")
HERE = Path("/srv/here")
HOME = Home(HERE, HERE / "palinurus.json", user_home=Path("/srv"))
CANARIES = [f"canary-{name}-{number:03}x" for number, name in enumerate(["plain", "url", "arg", "head", "env", "bot"])]
PLAIN, URL, ARG, HEAD, ENV, BOT = CANARIES

RICH: dict[str, Any] = {
    "meta": {"lastTouchedVersion": "2026.9.6"},
    "env": {"vars": {"BASE": "http://127.0.0.1:9", "SERVICE_KEY": ENV}, "OLD_TOKEN": PLAIN, "shellEnv": {"x": 1}},
    "secrets": {"providers": {"vault": {"source": "file", "path": "/srv/keys.json"}, "x": {"source": "exec"}}},
    "models": {
        "mode": "merge",
        "providers": {
            "mock": {
                "baseUrl": "${BASE}/v1",
                "apiKey": PLAIN,
                "headers": {"X-Tenant": HEAD, "Authorization": "Bearer ${MOCK_TOKEN}"},
                "models": [{"id": "large", "contextWindow": 200000, "compat": {"a": 1}}, {"id": "small"}],
            },
            "named": {"baseUrl": "http://127.0.0.1:1/v1", "apiKey": {"source": "env", "id": "NAMED_KEY"}},
            "local": {"baseUrl": "http://127.0.0.1:2/v1", "apiKey": "lm-studio"},
            "proxy": {"baseUrl": f"https://me:{URL}@host/v1", "apiKey": "${PROXY_KEY}"},
        },
    },
    "agents": {
        "defaults": {
            "workspace": "~/.openclaw/workspace",
            "model": {"primary": "mock/large", "fallbacks": ["mock/small"]},
            "models": {"mock/large": {"alias": "big", "params": {"t": 1}}},
            "userTimezone": "Europe/Berlin",
            "heartbeat": {"every": "0m"},
            "memorySearch": {"enabled": True, "provider": "openai", "remote": {"apiKey": PLAIN}},
            "compaction": {"keepRecentTokens": 600},
            "sandbox": {"mode": "off", "scope": "agent", "docker": {"env": {"GH_PAT": ENV, "LANG": "C"}}},
        },
        "list": [
            {"id": "main", "default": True, "name": "Crumb", "workspace": "~/.openclaw/workspace"},
            {"id": "Night Watch", "model": "mock/small", "tools": {"deny": ["exec"], "exec": {"mode": "deny"}}},
        ],
    },
    "tools": {
        "profile": "coding",
        "deny": ["browser"],
        "exec": {"security": "full", "ask": "off", "timeoutSec": 60, "safeBins": ["python3"]},
        "web": {"search": {"provider": "brave", "apiKey": PLAIN}},
    },
    "session": {"dmScope": "per-channel-peer", "reset": {"mode": "daily", "atHour": 5}, "mainKey": "home"},
    "messages": {"queue": {"mode": "collect", "cap": 7}, "ackReaction": "x"},
    "skills": {
        "load": {"extraDirs": ["/home/sam/.openclaw/workspace/more", "shared", "/opt/skills"]},
        "entries": {"todo": {"enabled": False, "apiKey": PLAIN, "env": {"TODO": ENV}, "config": {"pin": {"a": [1]}}}},
    },
    "memory": {"citations": "on", "search": {"query": {"maxResults": 6}}},
    "mcp": {
        "servers": {
            "files": {"command": "mcp-files", "args": ["--root", "/srv/.openclaw/workspace"], "env": {"A": ENV}},
            "keyed": {"command": "mcp-keyed", "args": [f"--api-key={ARG}"]},
        }
    },
    "gateway": {"port": 18789, "auth": {"mode": "none", "token": PLAIN}, "http": {"endpoints": {}}},
    "channels": {"telegram": {"botToken": BOT}},
    "plugins": {"entries": {"x": {"enabled": True}}},
    "hooks": {},
}

AGENTS = (
    ForeignAgent("main", None, ROOT / "workspace", is_default=True, configured=True),
    ForeignAgent("night-watch", None, None, configured=True),
    ForeignAgent("silent", ROOT / "agents/silent", None),
)


def rich(**sections: Any) -> dict[str, Any]:
    """A copy of it, with other sections."""
    return {**copy.deepcopy(RICH), **sections}


def load(text: str) -> LoadedConfig:
    return load_text(HOME, {}, text)


ALLOWED = ("env", "secrets", "models", "mcp", "skills", "memory", "agents.defaults.sandbox.docker.env")


def plan(
    theirs: Any,
    ours: str = "{}",
    *,
    keys: bool = False,
    agents: Sequence[ForeignAgent] = AGENTS,
    allow: Sequence[str] = ALLOWED,
) -> ConfigPlan:
    """`allow`: what a person has allowed; nearly all that would be held, because most are about the rest."""
    loaded = load(ours)
    here = Ours(ours, loaded.raw, default_agent(loaded.config), {})
    places = {ROOT / "workspace": HERE / "workspace", ROOT / "skills": HERE / "skills"}
    moves = PathMoves(ROOT, Path("/srv"), places)
    return ConfigPlanner(theirs, agents, here, moves, keys=keys, allow=allow).plan()


def outcomes(made: ConfigPlan) -> dict[str, str]:
    return {each.path: each.outcome for each in made.settings}


def reasons(made: ConfigPlan) -> dict[str, str]:
    return {each.path: each.reason for each in made.settings}


def shown(made: ConfigPlan) -> str:
    """All that anybody gets to see of it."""
    return json.dumps([[each.path, each.outcome, each.reason] for each in made.settings])
