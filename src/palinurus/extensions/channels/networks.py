"""The networks that there are adapters for: where each is, and what has to be installed for it. It is data."""

from __future__ import annotations

from msgspec import Struct


class Network(Struct, frozen=True):
    adapter: str  # "module:name" of a Channel; imported when an account is configured
    extra: str = ""  # of our packaging, that brings its library
    title: str = ""


NETWORKS: dict[str, Network] = {
    "telegram": Network("palinurus.extensions.channels.telegram:TelegramChannel", "telegram", "Telegram"),
    "discord": Network("palinurus.extensions.channels.discord:DiscordChannel", "discord", "Discord"),
    "slack": Network("palinurus.extensions.channels.slack:SlackChannel", "slack", "Slack"),
    "whatsapp": Network("palinurus.extensions.channels.whatsapp:WhatsAppChannel", "", "WhatsApp"),
    "email": Network("palinurus.extensions.channels.email.channel:EmailChannel", "email", "E-mail"),
    "webhook": Network("palinurus.extensions.channels.webhook:WebhookChannel", "", "Signed webhook"),
}
