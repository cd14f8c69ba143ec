"""Recipients of messages: what the message tool and `pal message send` take as `to`, and who may be written to.

    main, explicit:trip, agent:main:direct:alice        a session: the message is written into it
    telegram:42, telegram:group:7, slack:work:channel:C1:thread:9      a chat on a channel
    Ada                                                 somebody or a group that the home knows by this name

An agent writes only to chats that it answers, which the bindings decide; to a chat that nobody has let in only after a
person has agreed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.agents import agent_ids
from palinurus.config.load import Config
from palinurus.config.section import dig
from palinurus.dispatch.admission import AdmissionPolicy, admission_policy, group_refusal, is_listed
from palinurus.dispatch.contacts import Contact, Contacts, fold, peer_of
from palinurus.dispatch.routing import PREFIXES, Binding, RoutingTable, find_route, routing_table
from palinurus.dispatch.settings import ANY, DEFAULTS
from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import PEER_KINDS, RUN_KINDS, SessionKey
from palinurus.domain.tool import ToolRun
from palinurus.sessions.store import SessionStore
from palinurus.text.words import nearest
from palinurus.tools.session_tools import OWN, SOMEBODY_ELSE, SOMEBODY_NEW, Recipient

CHOSEN_NAME = "{} chose this name, and nobody has let them in"
STRANGER = "nobody has let {} in: a first message needs an approval"
WITH_PEOPLE = ("explicit", "dashboard")  # of the kinds of runs
NOT_SENT = "the message was not sent"
THREADS = ("thread", "topic")


class BoundChat(Struct, frozen=True):
    """A chat, the agent that answers it, and its session."""

    contact: Contact
    account: str
    agent: str
    session_key: SessionKey

    @property
    def place(self) -> Delivery:
        return Delivery(self.contact.channel, self.contact.id, self.account, self.contact.thread)


class Recipients(Struct, eq=False):
    _sessions: SessionStore
    _contacts: Contacts
    _config: Callable[[], Config]
    _has_sender: Callable[[str], bool]

    async def find(self, run: ToolRun, to: str) -> Recipient:
        """The recipient that an agent names. Raises BadRequest and NotFound."""
        said, agent, config = to.strip(), run.key.agent, self._config()
        if not said or not said.isprintable():
            raise BadRequest(f"not a recipient: {to[:80]!r}", hint="for example telegram:42")
        key = _session_named(said, agent)
        if key is None and ":" not in said:
            key = await self._named_session(said, agent)
        if key is not None:
            _check_agent(key, agent, config)
        if key is not None and key.kind not in PEER_KINDS:
            return await self._session(run, key)
        table = routing_table(config)
        contacts = await self._contacts.all(table)
        contact = _of_key(contacts, key) if key is not None else self._read(contacts, said, config)
        if contact is None and key is not None:
            return await self._session(run, key)
        if contact is None:
            known = [name for each in contacts for name in each.names]
            near = nearest(said, known)
            meant = f"did you mean {near}?" if near else "name a channel and an id, such as telegram:42"
            raise NotFound(f"nobody is known as {said[:80]!r}; {NOT_SENT}", hint=meant)
        found = self._chat(run, self._bind(contact, agent, config, table), config, table)
        policy = admission_policy(config, contact.channel, table.account(contact.channel, contact.account))
        is_vouched = ":" in said or fold(said) in (contact.id.lower(), *map(fold, contact.names))
        if found.ask or is_vouched or _is_let_in(policy, contact):
            return found
        return replace(found, ask=CHOSEN_NAME.format(contact.address))

    async def find_chat(self, to: str, *, channel: str, account: str, thread: str, agent: str) -> BoundChat:
        """A chat that the owner names: an id, kind:id or a name on a channel. Raises BadRequest and NotFound."""
        config = self._config()
        table, name = routing_table(config), self._channel(config, channel)
        if not to.strip() or not to.isprintable():
            raise BadRequest(f"not a recipient: {to[:80]!r}", hint="for example 42, group:7 or a name")
        contacts = [each for each in await self._contacts.all(table) if each.channel == name]
        contact = None if ":" in to else self._contacts.named(contacts, to)
        if contact is None:
            if ":" not in to and (near := nearest(to, _names(contacts))):
                raise NotFound(
                    f"nobody on {name} is known as {to[:80]!r}", hint=f"did you mean {near}? An id: direct:ID"
                )
            contact = self._read(contacts, f"{name}:{to.strip()}", config)
        assert contact is not None  # noqa: S101  # it has a colon
        contact = replace(contact, account=account.strip().lower() or contact.account, thread=thread or contact.thread)
        return self._bind(contact, agent, config, table)

    async def _named_session(self, name: str, agent: str) -> SessionKey | None:
        """The session of this name, if there is one: its key is an id."""
        for key in (SessionKey(agent, "explicit", peer=name.lower()), SessionKey(agent, "named", peer=name.lower())):
            if await self._sessions.find(key) is not None:
                return key
        return None

    async def _session(self, run: ToolRun, key: SessionKey) -> Recipient:
        if key == run.key:
            raise BadRequest("that is the current session", hint="write it in your reply")
        if key.kind in RUN_KINDS and key.kind not in WITH_PEOPLE:
            raise BadRequest(f"{key} is a task: nobody reads there", hint="send it to a session with people")
        is_known = await self._sessions.find(key) is not None
        is_own = key.kind in OWN and not key.thread
        reason = SOMEBODY_NEW if not is_known else "" if is_own else SOMEBODY_ELSE
        return Recipient(str(key), str(key), when_untrusted=reason)

    def _chat(self, run: ToolRun, chat: BoundChat, config: Config, table: RoutingTable) -> Recipient:
        contact = chat.contact
        policy = admission_policy(config, contact.channel, chat.account)
        is_direct = contact.kind == "direct"
        is_owner = is_direct and table.is_owner(contact.channel, contact.id)
        if refusal := _refusal(policy, contact, is_owner=is_owner):
            raise BadRequest(f"{refusal}; {NOT_SENT}", hint="tell your user")
        is_here = chat.session_key == run.key and run.channel == contact.channel
        if is_here and (not is_direct or run.sender.lower() == contact.id.lower()):
            raise BadRequest("that is the current chat", hint="write it in your reply")
        is_known = is_owner or contact.seen_at > 0 or _is_let_in(policy, contact)
        return Recipient(
            contact.address,
            str(chat.session_key),
            chat.place,
            ask="" if is_known else STRANGER.format(contact.address),
            when_untrusted="" if is_owner else SOMEBODY_ELSE if contact.seen_at else SOMEBODY_NEW,
            is_shared=chat.session_key == run.key,
        )

    def _read(self, contacts: list[Contact], said: str, config: Config) -> Contact | None:
        """A chat of the form channel[:account][:kind]:id[:thread:id], or one that is known by this name."""
        first, colon, rest = said.partition(":")
        if not colon:
            return self._contacts.named(contacts, said)
        wanted = _parse(self._channel(config, first), rest)
        known = [each for each in contacts if each.is_chat(wanted.channel, wanted.kind, wanted.id)]
        known = [each for each in known if wanted.account in ("", each.account)]
        exact = [each for each in known if each.thread == wanted.thread]
        same = {(each.kind, each.account): each for each in reversed(exact or known)}
        own = [each for each in same.values() if not each.account] or list(same.values())
        if len(own) > 1:
            shown = self._contacts.shown(own)
            raise BadRequest(f"{said[:80]!r} may be {shown}", hint="name one of them")
        if not own:
            return replace(wanted, kind=wanted.kind or "direct")
        return own[0] if exact else replace(own[0], thread=wanted.thread, sessions=())

    def _channel(self, config: Config, said: str) -> str:
        """Raises NotFound for a channel that this home does not have."""
        name = said.strip().lower()
        name = PREFIXES.get(name, name)
        configured = [each for each in map(str.lower, dig(config.data, ("channels",)) or {}) if each != DEFAULTS]
        if name in configured or self._has_sender(name):
            return name
        near, listed = nearest(name, configured), ", ".join(sorted(configured))
        have = f"configured: {listed}" if listed else "no channel is configured"
        hint = f"did you mean {near}? {have}" if near else have
        raise NotFound(f"there is no channel {said.strip()[:80]!r} here; {NOT_SENT}", hint=hint)

    def _bind(self, contact: Contact, agent: str, config: Config, table: RoutingTable) -> BoundChat:
        """Raises BadRequest if another agent answers this chat; without an agent it is the one that does."""
        self._channel(config, contact.channel)
        named = dig(config.data, ("channels", contact.channel, "accounts")) or {}
        account = table.account(contact.channel, contact.account)
        if contact.account and account not in map(str.lower, named) and account != table.account(contact.channel, ""):
            listed = f"configured: {', '.join(named)}" if named else "it has one account only"
            raise NotFound(f"{contact.channel} has no account {account[:80]!r}; {NOT_SENT}", hint=listed)
        route = find_route(table, contact.channel, account, peer_of(contact))
        keys = {each.agent_id: each.session_key for each in route.targets}
        wanted = agent or route.agent_id
        mine = next((key for key in contact.sessions if SessionKey.parse(key).agent == wanted), "")
        if wanted not in keys and mine and any(_may_fit(each, wanted, account, contact) for each in table.bindings):
            keys[wanted] = mine  # the server or the parent of the chat decides, which only a message tells
        if wanted not in keys:
            why = f"{contact.address} is answered by {route.agent_id}, not by {wanted}"
            raise BadRequest(f"{why}; {NOT_SENT}", hint="bindings say which agent uses which chats and accounts")
        return BoundChat(contact, account, wanted, SessionKey.parse(keys[wanted]))


def _names(contacts: list[Contact]) -> list[str]:
    return [name for each in contacts for name in (*each.names, *each.chosen_names)]


def _refusal(policy: AdmissionPolicy, contact: Contact, *, is_owner: bool) -> str:
    if not policy.settings.enabled:
        return f"{contact.channel} is switched off (enabled)"
    if contact.kind != "direct":
        return group_refusal(policy, peer_of(contact))
    is_off = policy.settings.dm_policy == "disabled" and not is_owner
    return "direct chats are switched off (dmPolicy)" if is_off else ""


def _is_let_in(policy: AdmissionPolicy, contact: Contact) -> bool:
    """Whether a person has named this very chat."""
    if contact.kind != "direct":
        return contact.id.lower() in map(str.lower, policy.settings.groups)
    listed = [each for each in policy.settings.allow_from if str(each).strip() != ANY]
    return contact.is_paired or is_listed(policy, contact.id, listed)


def _check_agent(key: SessionKey, agent: str, config: Config) -> None:
    known = agent_ids(config)
    if key.agent not in known:
        raise NotFound(f"there is no agent {key.agent!r}", hint=f"configured: {', '.join(known)}")
    if key.agent != agent:
        raise BadRequest(f"{key} belongs to another agent", hint="an agent writes into its own sessions only")


def _parse(channel: str, text: str) -> Contact:
    """[account:][kind:]id[:thread:id], with an empty kind if none is named. Raises BadRequest."""
    parts = text.split(":")
    at = next((at for at, part in enumerate(parts[:2]) if _kind(part) and parts[at + 1 :]), -1)
    kind, account = (_kind(parts[at]), parts[0].lower() if at == 1 else "") if at >= 0 else ("", "")
    rest = parts[at + 1 :]
    mark = next((at for at, part in enumerate(rest[:-1]) if at and part.lower() in THREADS), len(rest))
    if not rest[0]:
        raise BadRequest(f"not a recipient: {channel}:{text[:80]}", hint=f"for example {channel}:42")
    return Contact(channel, account, kind, ":".join(rest[:mark]), ":".join(rest[mark + 1 :]))


def _session_named(said: str, agent: str) -> SessionKey | None:
    """The key of a session; None: a chat on a channel, or a name."""
    parts = said.lower().split(":")
    if parts[0] == "agent":
        return SessionKey.parse(said)
    if parts[0] in ("main", *PEER_KINDS, *RUN_KINDS, "dm"):
        return SessionKey.recipient(said, agent)
    return None


def _of_key(contacts: list[Contact], key: SessionKey) -> Contact | None:
    """The chat of a session. None: one that is on no channel."""
    found = [each for each in contacts if str(key) in each.sessions]
    if found:
        return found[0]  # the one used last
    if not key.channel:
        return None
    return Contact(key.channel, key.account, key.kind, key.peer, key.thread)


def _kind(part: str) -> str:
    low = part.lower()
    return "direct" if low == "dm" else low if low in PEER_KINDS else ""


def _may_fit(binding: Binding, agent: str, account: str, contact: Contact) -> bool:
    """Whether a binding gives the chat to this agent, as far as it can be known without a message."""
    if (binding.agent, binding.channel) != (agent, contact.channel) or contact.kind == "direct":
        return False
    depends: Any = binding.guild or binding.team or binding.roles or binding.peer_kind
    return bool(depends) and binding.account in ("", ANY, account)
