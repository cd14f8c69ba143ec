"""Messages that the owner sends to people and groups on channels, in the name of an agent."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from palinurus.dispatch.delivery import State
from palinurus.operations.operation import AgentRef, operation
from palinurus.operations.services import Services
from palinurus.tools.session_tools import check_text


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
async def send_message(
    services: Services,
    channel: Annotated[str, "The channel, such as telegram."],
    to: Annotated[str, "An id, kind:id such as group:7, or a name that the home knows."],
    text: Annotated[str, "What to say."],
    account: Annotated[str, "The account of the channel; by default its default account."] = "",
    thread: Annotated[str, "The thread or topic."] = "",
    agent: Annotated[AgentRef, "In whose name; by default the agent that answers there."] = "",
    idempotency_key: str = "",
) -> SentMessage:
    """Send a message to a person or a group on a channel.

    When this returns the message is stored, and it is sent once: see `delivery.get`.
    """
    check_text(text)
    chat = await services.recipients.find_chat(to, channel=channel, account=account, thread=thread, agent=agent)
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
