"""A session's key as a type. All string surgery on keys happens here.

    agent:<id>:main
    agent:<id>:direct:<peer>
    agent:<id>:<channel>[:<account>]:direct|group|channel:<peer>[:thread|topic:<id>]
    agent:<id>:subagent:<uuid>      also cron, hook, boot, explicit, acp, dashboard
    agent:<id>:<name>               a named session, as older OpenClaw homes have them; with more parts, or the word
                                    of a shared place among two, it is private to nobody

`dm` is read as `direct`. Keys without the `agent:` prefix, as old homes hold them, belong to the agent `main`.
"""

from __future__ import annotations

import re

from msgspec import Struct

from palinurus.domain.errors import BadRequest

AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
DEFAULT_AGENT = "main"
_CONTROL = re.compile(r"[\x00-\x1f]")
PEER_KINDS = ("direct", "group", "channel")
# Parts that mean a shared place in keys of an unknown form (`matrix:room:!x`).
SHARED = frozenset(
    {"group", "groups", "supergroup", "channel", "channels", "room", "rooms", "space", "thread", "topic", "guild"}
)
ONE_OFF = "openai"  # requests of programs that name no session
RUN_KINDS = ("subagent", "cron", "hook", "boot", "explicit", "acp", "dashboard")


class SessionKey(Struct, frozen=True):
    """Identifies a session: which agent, and with whom or for what."""

    agent: str
    kind: str = "main"  # main | direct | group | channel | subagent | cron | hook | boot | explicit | ... | named
    channel: str = ""
    account: str = ""
    peer: str = ""  # of a run kind: its id; of a named session: its name
    thread_kind: str = ""  # thread | topic
    thread: str = ""

    def __str__(self) -> str:
        parts = ["agent", self.agent]
        if self.kind == "named":
            parts.append(self.peer)
        elif self.kind == "main":
            parts.append("main")
        else:
            parts += [part for part in (self.channel, self.account) if part]
            parts += [self.kind, self.peer]
        if self.thread:
            parts += [self.thread_kind, self.thread]
        return ":".join(parts)

    @property
    def is_subagent(self) -> bool:
        return self.kind == "subagent"

    @property
    def is_one_off(self) -> bool:
        """Whether a program's request made it for itself, without a name by which anybody would come back."""
        return self.kind == "named" and self.peer.startswith(f"{ONE_OFF}:")

    @property
    def is_private(self) -> bool:
        """Whether only the owner reads the session. Private memory is read only in private sessions."""
        if self.kind == "named" and self._may_be_shared:
            return False
        return self.kind in ("main", "direct", "named", "explicit", "dashboard", "boot") and not self.thread

    @property
    def _may_be_shared(self) -> bool:
        """Whether a name may be a key of an unknown form; in doubt it counts as shared. So does that of all chats."""
        parts = self.peer.split(":")
        return self.peer == "global" or len(parts) > 2 or (len(parts) == 2 and not SHARED.isdisjoint(parts))

    @property
    def chat_type(self) -> str:
        """direct | group | channel | thread; used by reset policies and memory scopes."""
        if self.thread:
            return "thread"
        if self.kind == "named" and self._may_be_shared:
            return "group"
        return self.kind if self.kind in ("group", "channel") else "direct"

    @classmethod
    def main(cls, agent: str = DEFAULT_AGENT) -> SessionKey:
        return cls(agent=agent)

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        """Parses a key, including old forms. Raises BadRequest if it is not a session key."""
        cleaned = text.strip().lower()
        if not cleaned or len(cleaned) > 512 or _CONTROL.search(cleaned):
            raise BadRequest(f"not a session key: {text[:80]!r}", hint="for example agent:main:main")
        parts = cleaned.split(":")
        if parts[0] == "agent" and len(parts) >= 2:
            agent, rest = parts[1], parts[2:] or ["main"]
        else:
            agent, rest = DEFAULT_AGENT, parts
        if not AGENT_ID.fullmatch(agent):
            raise BadRequest(f"not an agent's id: {agent!r} in session key {text!r}", hint="letters, digits, - and _")
        return _read(agent, rest, text)

    @classmethod
    def recipient(cls, text: str, agent: str) -> SessionKey:
        """The session that a message goes to: a whole key, or for this agent `main`, `telegram:42`, `telegram:group:7`
        or the name of a session. Raises BadRequest if it is none of these.
        """
        named = text.strip()
        if not named or not named.isprintable():
            raise BadRequest(f"not a recipient: {text[:80]!r}", hint="for example telegram:42")
        parts = named.lower().split(":")
        if parts[0] == "agent":
            return cls.parse(named)
        if len(parts) == 1 and parts[0] != "main":
            parts.insert(0, "explicit")
        elif len(parts) == 2 and parts[0] not in (*PEER_KINDS, *RUN_KINDS, "dm", "main"):
            parts.insert(1, "direct")
        return cls.parse(":".join(("agent", agent, *parts)))


def _read(agent: str, rest: list[str], text: str) -> SessionKey:
    room, thread_kind, thread = _thread(rest)
    if room == ["main"]:
        return SessionKey(agent, thread_kind=thread_kind, thread=thread)
    if rest[0] in RUN_KINDS:
        return SessionKey(agent, rest[0], peer=_peer(rest[1:], text))
    for index, part in enumerate(rest[:3]):
        kind = "direct" if part == "dm" else part
        if kind in PEER_KINDS and len(rest) > index + 1:
            channel, account = (*rest[:index], "", "")[:2]
            peer, thread_kind, thread = _thread(rest[index + 1 :])
            return SessionKey(agent, kind, channel, account, _peer(peer, text), thread_kind, thread)
    return SessionKey(agent, "named", peer=_peer(rest, text))


def _thread(parts: list[str]) -> tuple[list[str], str, str]:
    for kind in ("topic", "thread"):
        if kind in parts[1:]:
            at = parts.index(kind, 1)
            if parts[at + 1 :]:
                return parts[:at], kind, ":".join(parts[at + 1 :])
    return parts, "", ""


def _peer(parts: list[str], text: str) -> str:
    peer = ":".join(parts)
    if not peer:
        raise BadRequest(f"session key without a peer: {text!r}", hint="for example agent:main:direct:alice")
    return peer
