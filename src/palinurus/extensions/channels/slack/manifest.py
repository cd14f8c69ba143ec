"""What Slack must know of the app: scopes, events, commands. `pal channels manifest slack` prints it,
a person pastes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palinurus.dispatch.channels import ChannelCommand

SCOPES = (
    *("app_mentions:read", "channels:history", "channels:read", "chat:write", "commands", "files:read", "files:write"),
    *("groups:history", "groups:read", "im:history", "im:read", "im:write", "mpim:history", "mpim:read"),
    *("reactions:read", "reactions:write", "users:read"),
)
EVENTS = ("app_mention", "message.channels", "message.groups", "message.im", "message.mpim")
PREFIX = "agent"
BUILT_IN = frozenset(  # commands of Slack itself, which no app gets
    (
        *("apps", "archive", "away", "call", "collapse", "dm", "dnd", "expand", "feed", "feedback", "huddle", "invite"),
        *("join", "keys", "leave", "me", "msg", "mute", "open", "part", "prefs", "remind", "remove", "rename"),
        *("search", "shortcuts", "shrug", "star", "status", "topic", "unarchive", "who"),
    )
)


def native_name(command: str) -> str:
    """The name under which Slack knows a command of ours: /status is Slack's own, so ours is /agentstatus."""
    return PREFIX + command if command in BUILT_IN else command


def command_of(native: str) -> str:
    """The command of ours that Slack knows under this name."""
    own = native.removeprefix(PREFIX)
    return own if own in BUILT_IN else native


def slack_manifest(commands: Iterable[ChannelCommand], *, name: str = "Palinurus", url: str = "") -> dict[str, Any]:
    """The manifest of an app. `url`: the public address of the webhook, for mode http; empty: Socket Mode."""
    where = {"request_url": url} if url else {}
    slash = [
        {"command": f"/{native_name(each.name)}", "description": each.about[:2000] or each.name, "should_escape": False}
        | ({"url": url} if url else {})
        for each in commands
    ]
    return {
        "display_information": {"name": name},
        "features": {
            "app_home": {"messages_tab_enabled": True, "messages_tab_read_only_enabled": False},
            "bot_user": {"display_name": name, "always_online": True},
            "slash_commands": slash,
        },
        "oauth_config": {"scopes": {"bot": list(SCOPES)}},
        "settings": {
            "event_subscriptions": {"bot_events": list(EVENTS), **where},
            "interactivity": {"is_enabled": True, **where},
            "socket_mode_enabled": not url,
            "token_rotation_enabled": False,
        },
    }
