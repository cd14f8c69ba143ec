"""What holds for the hands of one agent: defaults, the config's own, the agent's, joined into one record.

What an agent's entry says stands before what is said for all. Only the allowances of tools are not joined here: each
scope of those narrows by itself, in tools/policy/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from palinurus.config.hands import Ask, DockerOptions, ElevatedOptions, ExecOptions, SandboxOptions, Security
from palinurus.config.home import Home
from palinurus.config.schema import Config
from palinurus.config.section import Secret, Section
from palinurus.config.settings import agent_layers

UNTRUSTED_PATHS = (
    *("*.eml", "*.mbox", "*.msg", "*.mhtml", "*.html", "*.htm"),
    *("inbox/", "mail/", "maildir/", "downloads/", "attachments/"),
)
SAFE_BINS = ("cut", "uniq", "head", "tail", "tr", "wc")  # OpenClaw's list of 2026.9


class ExecSettings(Struct, frozen=True):
    """How commands run outside the sandbox."""

    security: Security = "allowlist"
    ask: Ask = "on-miss"
    ask_fallback: Security = "deny"
    allowlist: tuple[str, ...] = ()
    safe_bins: tuple[str, ...] = SAFE_BINS
    timeout_sec: float = 1800.0
    background_ms: int = 10_000
    approval_timeout_sec: float = 1800.0
    grant_days: float = 90.0
    patches: bool = False


class ElevatedSettings(Struct, frozen=True):
    """Who may leave the sandbox. `allow_from` None: the owner only."""

    enabled: bool = True
    allow_from: Mapping[str, tuple[str, ...]] | None = None


class SandboxSettings(Struct, frozen=True):
    """Where commands run. Mode auto: behind walls if the machine can, else on the host, where they ask."""

    root: Path  # of private workspaces
    mode: Literal["auto", "off", "non-main", "all"] = "auto"
    scope: Literal["session", "agent", "shared"] = "agent"
    backend: Literal["bubblewrap", "docker"] = "bubblewrap"
    access: Literal["none", "ro", "rw"] = "rw"
    network: bool = False
    memory_mb: int = 2048
    processes: int = 128
    cpu_seconds: int = 600
    file_mb: int = 1024
    env: Mapping[str, str] = {}
    docker: DockerOptions = DockerOptions.model_construct()


class SearchSettings(Struct, frozen=True):
    enabled: bool = True
    provider: str = ""  # searxng or brave; empty: by what is set
    base_url: str = ""
    api_key: Secret | None = None
    max_results: int = 5
    timeout_seconds: float = 20.0


class FetchSettings(Struct, frozen=True):
    enabled: bool = True
    max_chars: int = 50_000
    max_response_bytes: int = 2_000_000
    max_redirects: int = 3
    timeout_seconds: float = 30.0
    allow_private: tuple[str, ...] = ()


class HandsSettings(Struct, frozen=True):
    exec: ExecSettings
    elevated: ElevatedSettings
    sandbox: SandboxSettings
    search: SearchSettings
    fetch: FetchSettings
    untrusted: Literal["ask", "deny", "allow"] = "ask"
    untrusted_paths: tuple[str, ...] = UNTRUSTED_PATHS


def hands_settings(config: Config, home: Home, agent_id: str) -> HandsSettings:
    layers = list(agent_layers(config, agent_id))
    tools = [layer.tools for layer in layers if layer.tools is not None] + [config.tools]
    web = config.tools.web
    return HandsSettings(
        exec=_exec([each.exec for each in tools if each.exec]),
        elevated=_elevated([each.elevated for each in tools if each.elevated]),
        sandbox=_sandbox([layer.sandbox for layer in layers if layer.sandbox], home),
        search=SearchSettings(**_said([web.search] if web and web.search else [], SearchSettings)),
        fetch=FetchSettings(**_said([web.fetch] if web and web.fetch else [], FetchSettings)),
        untrusted=config.tools.untrusted or "ask",
        untrusted_paths=untrusted_paths(config),
    )


def untrusted_paths(config: Config) -> tuple[str, ...]:
    """The same for all agents: one may read what another has been sent."""
    said = config.tools.untrusted_paths
    return UNTRUSTED_PATHS if said is None else said


def _said(sections: Sequence[Section], record: type[Struct]) -> dict[str, Any]:
    """For each field of the record, what the nearest section says; fields that none speaks of are left out."""
    found: dict[str, Any] = {}
    for section in reversed(sections):
        for name in record.__struct_fields__:
            if (value := getattr(section, name, None)) is not None:
                found[name] = value
    return found


def _exec(sections: Sequence[ExecOptions]) -> ExecSettings:
    patches = next((each.apply_patch.enabled for each in sections if each.apply_patch), False)
    return ExecSettings(**_said(sections, ExecSettings), patches=patches)


def _elevated(sections: Sequence[ElevatedOptions]) -> ElevatedSettings:
    """An agent can only restrict what is said for all: all must have it enabled, and a sender must be on all lists."""
    enabled = all(each.enabled is not False for each in sections)
    lists = [each.allow_from for each in sections if each.allow_from is not None]
    if not lists:
        return ElevatedSettings(enabled)
    channels = set.intersection(*(set(each) for each in lists))
    return ElevatedSettings(
        enabled,
        {
            channel: tuple(
                sender
                for sender in map(str, lists[-1][channel])
                if all(sender in map(str, each[channel]) for each in lists)
            )
            for channel in sorted(channels)
        },
    )


def _sandbox(sections: Sequence[SandboxOptions], home: Home) -> SandboxSettings:
    said = _said(sections, SandboxSettings)
    root = next((each.workspace_root for each in sections if each.workspace_root), None)
    access = next((each.workspace_access for each in sections if each.workspace_access), None)
    mode = said.get("mode", "auto")
    said["root"] = home.expand(root, home.root) if root else home.root / "sandboxes"
    said["access"] = access or ("none" if mode in ("non-main", "all") else "rw")
    return SandboxSettings(**said)
