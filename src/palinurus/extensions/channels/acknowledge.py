"""Tells the sender of a message at once that it was accepted: by a reaction, where the config asks for one."""

from __future__ import annotations

from palinurus.dispatch.channels import ChannelMessage, ChatTarget
from palinurus.dispatch.reply_settings import MessageSettings
from palinurus.domain.envelope import Inbound, Peer
from palinurus.extensions.channels.account import RunningAccount
from palinurus.operations.services import Services


def reaction_for(services: Services, account: RunningAccount, peer: Peer) -> str:
    """The emoji for a message in this chat; empty: none."""
    shared = services.config.section(MessageSettings)
    own = account.replies.ack_reaction
    emoji = shared.ack_reaction if own is None else own
    fits = {
        "all": True,
        "direct": peer.kind == "direct",
        "group-all": peer.kind != "direct",
        "group-mentions": peer.kind != "direct" and peer.mentioned,
        "off": False,
    }[shared.ack_reaction_scope]
    return emoji if fits and account.channel.capabilities.reactions else ""


async def acknowledge(services: Services, account: RunningAccount, message: ChannelMessage) -> None:
    if emoji := reaction_for(services, account, message.peer):
        await account.channel.react(ChatTarget(message.peer.id, message.peer.thread), message.id, emoji)


async def take_back(services: Services, account: RunningAccount, inbound: Inbound) -> None:
    """When the reply was sent."""
    peer = inbound.peer
    if peer is None or not inbound.message_id or not services.config.section(MessageSettings).remove_ack_after_reply:
        return
    if reaction_for(services, account, peer):
        await account.channel.react(ChatTarget(peer.id, peer.thread), inbound.message_id, "")
