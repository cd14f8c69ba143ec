"""Contacts: the people and groups that a home knows on channels, with their ids, names, and when they wrote last.

They come from sessions, approved pairings, the owner's ids and identity links. A name that the owner gave (an identity
link, the name of a session) counts before one that people chose themselves, and an id before every name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, tzinfo

from msgspec import Struct
from msgspec.structs import replace

from palinurus.dispatch.pairing import Pairing, Pairings
from palinurus.dispatch.routing import RoutingTable, sender_id
from palinurus.domain.envelope import SURFACES, Delivery, Peer
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import PEER_KINDS, SessionKey
from palinurus.sessions.session import Session
from palinurus.sessions.store import SessionStore

MOST_SESSIONS = 2_000  # newest ones that are looked through
MOST_SHOWN = 5  # candidates in an error
OWNER = "owner"
ChatKey = tuple[str, str, str, str, str]


class Contact(Struct, frozen=True):
    """One chat on a channel."""

    channel: str
    account: str  # empty: the default one
    kind: str  # direct | group | channel
    id: str
    thread: str = ""
    person: str = ""  # the owner's name for them: see session.identityLinks
    names: tuple[str, ...] = ()  # given by the owner
    chosen_names: tuple[str, ...] = ()  # prove nothing
    seen_at: int = 0  # 0: never
    sessions: tuple[str, ...] = ()  # keys of those in which its messages arrived
    is_paired: bool = False

    @property
    def key(self) -> ChatKey:
        return self.channel, self.account, self.kind, self.id.lower(), self.thread

    @property
    def address(self) -> str:
        return chat_address(self.channel, self.account, self.kind, self.id, self.thread)

    def is_chat(self, channel: str, kind: str, chat_id: str) -> bool:
        """An empty kind means any."""
        return self.channel == channel and kind in ("", self.kind) and self.id.lower() == chat_id.lower()


def chat_address(channel: str, account: str, kind: str, chat_id: str, thread: str = "") -> str:
    """A chat in the form in which the message tool reads it, such as telegram:42 or slack:work:channel:C1:thread:9."""
    place = ([account] if account else []) + ([kind] if account or kind != "direct" else [])
    return ":".join([channel, *place, chat_id, *(["thread", thread] if thread else [])])


class Contacts(Struct, eq=False):
    _sessions: SessionStore
    _pairings: Pairings
    _zone: Callable[[], tzinfo]

    async def all(self, table: RoutingTable) -> list[Contact]:
        """The one that was seen last comes first."""
        sessions, pairings = await asyncio.gather(self._sessions.recent(limit=MOST_SESSIONS), self._pairings.entries())
        known: dict[ChatKey, Contact] = {}
        found = (*map(_of_session, sessions), *(_of_pairing(each) for each in pairings if each.status == "approved"))
        for contact in filter(None, found):
            is_default = table.account(contact.channel, "") == contact.account
            chat = replace(contact, account="") if is_default else contact
            known[chat.key] = _merged(known[chat.key], chat) if chat.key in known else chat
        return sorted(_with_names(known.values(), table), key=lambda each: -each.seen_at)

    def named(self, contacts: Iterable[Contact], name: str) -> Contact | None:
        """The one that an id or a name means; None: nobody. Raises BadRequest when it may be several."""
        wanted = fold(name)
        meanings: tuple[Callable[[Contact], bool], ...] = (
            lambda each: each.id.lower() == wanted,
            lambda each: wanted in map(fold, each.names),
            lambda each: wanted in map(fold, each.chosen_names),
        )
        for means in meanings:
            found = _without_threads([each for each in contacts if means(each)])
            if len(found) > 1 and not (_is_one_person(found, wanted) and found[0].seen_at > found[1].seen_at):
                raise BadRequest(f"{name[:80]!r} may be {self.shown(found)}", hint="name one by channel and id")
            if found:
                return found[0]
        return None

    def shown(self, contacts: list[Contact]) -> str:
        """Candidates without the names that people chose, which may be anything."""
        listed = [f"{each.address} ({self._seen(each)})" for each in contacts[:MOST_SHOWN]]
        return ", ".join(listed) + (f" and {len(contacts) - MOST_SHOWN} more" if len(contacts) > MOST_SHOWN else "")

    def _seen(self, contact: Contact) -> str:
        if not contact.seen_at:
            return "never seen"
        return f"seen {datetime.fromtimestamp(contact.seen_at / 1000, self._zone()):%Y-%m-%d %H:%M}"


def fold(name: str) -> str:
    return " ".join(name.split()).casefold()


async def last_place(sessions: SessionStore, table: RoutingTable, agent: str) -> Delivery | None:
    """Where the owner wrote to an agent from last, by a channel: in the main session or in a direct chat of their own.
    None: nowhere yet."""
    main = await sessions.find(SessionKey.main(agent))
    recent = await sessions.recent(agent=agent, limit=MOST_SESSIONS)
    own = [each for each in (*filter(None, [main]), *recent) if _is_own(each, table)]
    return max(own, key=lambda each: each.last_interaction_at).delivery if own else None


def _is_own(session: Session, table: RoutingTable) -> bool:
    key, place = SessionKey.parse(session.key), session.delivery
    if place is None or place.channel in SURFACES:
        return False
    return key.kind == "main" or (key.kind == "direct" and table.is_owner(place.channel, place.to))


def _of_session(session: Session) -> Contact | None:
    """None: a session that is no chat on a channel."""
    key, place = SessionKey.parse(session.key), session.delivery
    if place is not None and place.channel in SURFACES:
        place = None
    kind = key.kind if key.kind in PEER_KINDS else "direct"
    if place is None and (not key.channel or key.kind not in PEER_KINDS):
        return None
    if place is None:  # it came from another home, or somebody was written to who has not answered yet
        place = Delivery(key.channel, key.peer, key.account, key.thread)
    is_chat = key.kind in PEER_KINDS
    return Contact(
        place.channel,
        place.account,
        kind,
        place.to,
        place.thread,
        names=(session.label,) if session.label and is_chat else (),
        chosen_names=(session.peer_name,) if session.peer_name else (),
        seen_at=session.last_interaction_at if session.delivery is not None else 0,
        sessions=(session.key,),
    )


def _of_pairing(pairing: Pairing) -> Contact:
    names = (pairing.sender_name,) if pairing.sender_name else ()
    seen_at = pairing.last_seen_at or pairing.asked_at
    return Contact(
        pairing.channel,
        pairing.account,
        "direct",
        pairing.sender,
        chosen_names=names,
        seen_at=seen_at,
        is_paired=True,
    )


def _merged(one: Contact, other: Contact) -> Contact:
    return replace(
        one,
        names=(*one.names, *other.names),
        chosen_names=(*one.chosen_names, *other.chosen_names),
        seen_at=max(one.seen_at, other.seen_at),
        sessions=(*one.sessions, *other.sessions),
        is_paired=one.is_paired or other.is_paired,
    )


def _with_names(contacts: Iterable[Contact], table: RoutingTable) -> Iterator[Contact]:
    """With the names that the config gives. Who was named there and never seen is added."""
    rest = {*table.links, *(each for each in table.owners if ":" in each)}
    for contact in contacts:
        identity = f"{contact.channel}:{sender_id(contact.channel, contact.id)}"
        is_person = contact.kind == "direct"
        rest.discard(identity if is_person else "")
        yield _named_by_config(contact, identity, table) if is_person else contact
    for identity in sorted(rest):
        channel, _, id_ = identity.partition(":")
        yield _named_by_config(Contact(channel, "", "direct", id_), identity, table)


def _named_by_config(contact: Contact, identity: str, table: RoutingTable) -> Contact:
    person, is_owner = table.links.get(identity, ""), table.is_owner(contact.channel, contact.id)
    names = (*contact.names, *filter(None, (person, OWNER if is_owner else "")))
    return replace(contact, person=person, names=names)


def _is_one_person(contacts: list[Contact], name: str) -> bool:
    """Whether the owner said that all these are one person of this name: then the one used last is meant."""
    return all(fold(each.person) == name or (name == OWNER and OWNER in each.names) for each in contacts)


def _without_threads(contacts: list[Contact]) -> list[Contact]:
    """A thread of a chat is no other chat when the chat itself is meant."""
    whole = {each.key[:4]: each for each in sorted(contacts, key=lambda each: (not each.thread, each.seen_at))}
    return sorted(whole.values(), key=lambda each: -each.seen_at)


def peer_of(contact: Contact) -> Peer:
    return Peer(contact.id, contact.kind, thread=contact.thread)  # type: ignore[arg-type]  # one of PEER_KINDS
