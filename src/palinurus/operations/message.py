"""Messages that the owner sends to people and groups on channels, in the name of an agent."""

from __future__ import annotations

from msgspec import Struct

from palinurus.dispatch.delivery import State
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.tools.session_tools import check_text


class SendMessage(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A message to a person or a group."""

    channel: str  # such as telegram
    to: str  # an id, kind:id such as group:7, or a name that the home knows
    text: str
    account: str = ""  # of the channel; empty: its default account
    thread: str = ""
    agent: str = ""  # in whose name; empty: the agent that answers there


class SentMessage(Struct, frozen=True, rename="camel"):
    """A message in the outbox. `delivery.get` says what becomes of it."""

    id: str
    state: State
    channel: str
    to: str
    account: str
    thread: str
    agent_id: str
    session_key: str  # where it stands, and where the answer arrives
    is_connected: bool  # whether this process can send on that channel; else it waits


@operation("message.send", scope="write")
async def send_message(services: Services, params: SendMessage, idempotency_key: str = "") -> SentMessage:
    """Send a message to a person or a group on a channel.

    When this returns the message is stored, and it is sent once: see `delivery.get`.
    """
    text = check_text(params.text)
    chat = await services.recipients.find_chat(
        params.to, channel=params.channel, account=params.account, thread=params.thread, agent=params.agent
    )
    delivery = await services.messages.post(chat, text, idempotency_key or services.new_id())
    key = str(chat.session_key)
    services.holder.publish_message(key, delivery.id, text)
    return SentMessage(
        delivery.id,
        delivery.state,
        delivery.channel,
        delivery.to,
        delivery.account,
        delivery.thread,
        chat.agent,
        key,
        services.deliveries.has_sender(delivery.channel),
    )
