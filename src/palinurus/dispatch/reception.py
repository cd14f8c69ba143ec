"""The reception: what a channel calls for each message that arrives. It admits, routes and submits.

A message of somebody unknown is not processed: they get a code, once. A message in a group that does not speak to the
agent is overheard. An admitted message goes to the session of its route, or with a broadcast to one session of each
agent: at once, or one after the other by a job that survives a restart. The owner's messages are the owner's; those of
everybody else are text from outside, without commands, and nobody is asked for approvals on their behalf.

A channel awaits `receive` for one chat's messages in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from palinurus.config.agents import SessionSettings
from palinurus.config.load import Config
from palinurus.dispatch import commands
from palinurus.dispatch.admission import (
    Admission,
    AdmissionPolicy,
    GroupHistory,
    admission_policy,
    admit,
    history_limit,
    is_spoken_to,
    mention_patterns,
    origin_of,
    shown_name,
)
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.dispatcher import Dispatcher
from palinurus.dispatch.jobs import Jobs
from palinurus.dispatch.pairing import Pairing, Pairings
from palinurus.dispatch.routing import MessageRoute, RouteTarget, RoutingTable, find_route, routing_table, sender_id
from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Delivery, Inbound, Peer
from palinurus.domain.errors import BadRequest, HolderLost, JobFailed, NotFound, PalinurusError, QueueFull, WaitTimeout
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.messages import Origin, harmless
from palinurus.domain.tool import Restriction
from palinurus.storage.jobs import Job, JobKind
from palinurus.text.patterns import LinearPatterns

log = logging.getLogger(__name__)

BROADCAST = "broadcast"  # the kind of job
ONE_AFTER_ANOTHER_SECONDS = 3600.0
FOR_GUESTS = ("new", "compact", "stop", "help", "whoami")  # commands of those on commands.allowFrom
NO_COMMANDS = Restriction("channel", "a command would see what is private to the owner", deny=("exec", "process"))
Complete = Callable[[Inbound, MessageRoute], Awaitable[Inbound]]
"""Adds to an admitted message what is worth getting only now, such as files. May be slow; raises nothing."""
Identify = Callable[[str], AgentIdentity]
"""Who an agent is, by its id. May block for a moment; raises PalinurusError."""


class ReceivedMessage(Struct, frozen=True):
    """What became of a message."""

    outcome: Literal["accepted", "overheard", "pairing", "refused"]
    why: str
    route: MessageRoute | None = None
    runs: tuple[Run, ...] = ()  # of a broadcast one after the other: none yet


class BroadcastMessage(Struct, frozen=True):
    """The payload of a broadcast: messages to several agents, in order."""

    messages: tuple[Inbound, ...]


class Reception:
    def __init__(
        self,
        dispatcher: Dispatcher,
        deliveries: Deliveries,
        jobs: Jobs,
        pairings: Pairings,
        config: Callable[[], Config],
        identify: Identify,
    ) -> None:
        """`config` returns the current config. It is called for every message and must not block."""
        self._dispatcher = dispatcher
        self._deliveries = deliveries
        self._jobs = jobs
        self._pairings = pairings
        self._config = config
        self._identify = identify
        self._history = GroupHistory()
        self._known: tuple[Config, RoutingTable] | None = None
        self._patterns: dict[tuple[str, ...], LinearPatterns] = {}
        kind = JobKind(
            BROADCAST, BroadcastMessage, self._send_in_turn, on_crash="retry", seconds=ONE_AFTER_ANOTHER_SECONDS
        )
        jobs.offer(kind)

    async def receive(self, inbound: Inbound, complete: Complete | None = None) -> ReceivedMessage:
        """Takes in one message. An accepted one is on the disk when this returns. Raises as Dispatcher.submit does."""
        peer = inbound.peer
        if peer is None or not peer.id.strip() or not inbound.sender.strip():
            raise BadRequest(f"a message of {inbound.channel} has no chat or no sender", hint="the channel sets both")
        config, table = self._table()
        channel = inbound.channel.strip().lower()
        sender, account = sender_id(channel, inbound.sender), table.account(channel, inbound.account)
        if len(sender) != len(inbound.sender):  # spaces or a prefix: on the network this is somebody else
            log.warning("a message of %s is refused: %.80r is no id of the network", channel, inbound.sender)
            return ReceivedMessage("refused", "the sender's id is written in another form than ids of the network")
        inbound = msgspec.structs.replace(inbound, channel=channel, account=account, sender=sender)
        policy = admission_policy(config, channel, account)
        admission = await self._admit(policy, account, peer, sender)
        if admission.outcome == "pairing":
            return await self._offer_pairing(inbound, peer)
        if admission.outcome == "refused":
            log.info("a message of %s:%s is refused: %s", channel, sender, admission.why)
            return ReceivedMessage("refused", admission.why)
        route = find_route(table, channel, account, peer)
        origin, commanding = origin_of(table, policy, sender)
        is_command = _is_command(inbound.text, config, origin, commanding)
        targets = route.targets
        if admission.needs_mention and not is_command:
            targets = await self._spoken_to(config, inbound, peer, route)
        for target in route.targets:
            if target not in targets:
                self._history.add(target.session_key, inbound, history_limit(config, policy))
        if not targets:
            return ReceivedMessage("overheard", "it does not speak to the agent", route)
        if complete is not None and not is_command:
            inbound = await complete(inbound, route)
        message = inbound if is_command or not _is_quoted(peer, origin) else _quoted(inbound, origin)
        runs = await self._submit(_as_sent_by(message, peer, origin), targets, table.strategy)
        return ReceivedMessage("accepted", admission.why, route, runs)

    async def _admit(self, policy: AdmissionPolicy, account: str, peer: Peer, sender: str) -> Admission:
        admission = admit(policy, peer, sender, paired=False)
        if admission.outcome != "pairing":
            return admission
        paired = await self._pairings.is_approved(policy.channel, account, sender)
        return admit(policy, peer, sender, paired=paired)

    def is_owner(self, channel: str, sender: str) -> bool:
        return self._table()[1].is_owner(channel, sender)

    def _table(self) -> tuple[Config, RoutingTable]:
        config = self._config()
        if self._known is None or self._known[0] is not config:
            self._known = config, routing_table(config)
            self._patterns.clear()
        return self._known

    async def _offer_pairing(self, inbound: Inbound, peer: Peer) -> ReceivedMessage:
        """The sender is told a code, once; nothing of the message is kept."""
        name = " ".join(peer.sender_name.split())
        asked = await self._pairings.ask(inbound.channel, inbound.account, inbound.sender, name)
        if asked is None:
            return ReceivedMessage("pairing", "the sender waits for an approval, or too many others do")
        place = inbound.reply_to or Delivery(inbound.channel, peer.id, inbound.account, peer.thread)
        key = f"pairing:{asked.identity}:{asked.account}:{asked.asked_at}"
        try:
            await self._deliveries.post(place, pairing_text(asked), key)
        except QueueFull as error:  # the owner can approve them all the same
            log.warning("%s was not told a pairing code: %s", asked.identity, error)
        return ReceivedMessage("pairing", "the sender was told a code")

    async def _spoken_to(
        self, config: Config, inbound: Inbound, peer: Peer, route: MessageRoute
    ) -> tuple[RouteTarget, ...]:
        """The agents that a message in a group speaks to."""
        if peer.mentioned:
            return route.targets
        return await asyncio.to_thread(
            lambda: tuple(
                target
                for target in route.targets
                if is_spoken_to(inbound.text, peer, self._patterns_of(config, target.agent_id))
            )
        )

    def _patterns_of(self, config: Config, agent_id: str) -> LinearPatterns:
        try:
            identity = self._identify(agent_id)
        except PalinurusError as error:
            log.warning("the name of %s is not known: %s", agent_id, error)
            identity = AgentIdentity(agent_id)
        patterns = mention_patterns(config, agent_id, identity)
        if patterns not in self._patterns:
            self._patterns[patterns] = LinearPatterns(patterns)
        return self._patterns[patterns]

    async def _submit(self, message: Inbound, targets: tuple[RouteTarget, ...], strategy: str) -> tuple[Run, ...]:
        several = len(targets) > 1
        messages = tuple(
            msgspec.structs.replace(
                message,
                session_key=target.session_key,
                notes=(*message.notes, *self._history.take(target.session_key)),
                idempotency_key=f"{message.idempotency_key}:{target.agent_id}" if several else message.idempotency_key,
            )
            for target in targets
        )
        if several and strategy == "sequential":
            await self._jobs.add(BROADCAST, BroadcastMessage(messages), message.idempotency_key)
            return ()
        return tuple([await self._dispatcher.submit(each) for each in messages])

    async def _send_in_turn(self, _: Any, broadcast: BroadcastMessage, __: Job) -> int:
        """Each agent gets the message when the one before it has answered. Repeating it finds the same runs."""
        for message in broadcast.messages:
            try:
                run = await self._dispatcher.submit(message)
                await run.wait(ONE_AFTER_ANOTHER_SECONDS)
            except NotFound as error:  # the agent has gone since
                log.warning("a broadcast leaves out %s: %s", message.session_key, error)
            except (HolderLost, QueueFull, WaitTimeout) as error:
                raise JobFailed(str(error)) from error
        return len(broadcast.messages)


def pairing_text(pairing: Pairing) -> str:
    """What an unknown sender is told."""
    return (
        f"This agent does not know you yet. Your id on {pairing.channel} is {pairing.sender}.\n"
        f"Pairing code: {pairing.code} (good for one hour)\n"
        f"Its owner can let you in with: pal pairing approve {pairing.code}"
    )


def _is_command(text: str, config: Config, origin: Origin, commanding: bool) -> bool:
    """Whether the text is a command, and one for this sender."""
    command = commands.parse(text, config.section(SessionSettings).reset_triggers)
    if origin == Origin.OWNER:
        return command is not None or text.startswith("/")
    return commanding and command is not None and command.name in FOR_GUESTS


def _is_quoted(peer: Peer, origin: Origin) -> bool:
    return peer.kind != "direct" or origin != Origin.OWNER


def _quoted(inbound: Inbound, origin: Origin) -> Inbound:
    """With the sender before the text: several people speak here. What others write is a command no more by that."""
    text = inbound.text if origin == Origin.OWNER else harmless(inbound.text)
    return msgspec.structs.replace(inbound, text=f"{shown_name(inbound)}: {text}")


def _as_sent_by(inbound: Inbound, peer: Peer, origin: Origin) -> Inbound:
    place = inbound.reply_to or Delivery(inbound.channel, peer.id, inbound.account, peer.thread)
    owner = origin == Origin.OWNER
    return msgspec.structs.replace(
        inbound,
        origin=origin,
        reply_to=place,
        attended=inbound.attended and owner,
        restrictions=inbound.restrictions if owner or peer.kind != "direct" else (*inbound.restrictions, NO_COMMANDS),
    )
