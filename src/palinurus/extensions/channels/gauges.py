"""Figures of channels for /metrics: which accounts are connected, and what each has received and sent."""

from __future__ import annotations

from palinurus.extensions.channels.operations import account_statuses
from palinurus.gateway.meter import MOST, Gauge
from palinurus.operations.services import Services


def count_messages(services: Services) -> list[Gauge]:
    """By `channel:account`, which the config names. Nothing where no account runs."""
    known = {f"{each.channel}:{each.account}": each for each in account_statuses(services)[:MOST]}
    if not known:
        return []
    connected = {name: int(each.state == "connected") for name, each in known.items()}
    received = {name: each.received for name, each in known.items()}
    sent = {name: each.sent for name, each in known.items()}
    return [
        Gauge("pal_channel_connected", "Whether the account of a channel is connected.", connected, "account"),
        Gauge("pal_channel_received_total", "Messages received.", received, "account", counter=True),
        Gauge("pal_channel_sent_total", "Messages sent.", sent, "account", counter=True),
    ]
