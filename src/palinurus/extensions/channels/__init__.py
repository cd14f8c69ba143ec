"""Chat networks: what they send becomes messages to agents, and replies travel back.

`host` runs the accounts that the config names (`account`, `networks`); each adapter (`telegram`, `discord`, …) only
translates, by the contract of dispatch/channels.py. `inbox` takes messages in, with their files (`media`) and
acknowledgements. `sender` sends deliveries, `stream` and `blocks` show a reply before it is
complete, `questions` asks for approvals. `operations` and `commands` are what people use.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.service(f"{__name__}.host:run_channels")
    app.http_routes(f"{__name__}.routes:ROUTES")
    for name, function in (
        ("list", "list_channels"),
        ("status", "show_channel_status"),
        ("networks", "list_networks"),
        ("manifest", "make_manifest"),
        ("add", "add_channel"),
        ("test", "try_channel"),
        ("remove", "remove_channel"),
        ("logs", "show_channel_logs"),
    ):
        app.operation(f"{__name__}.operations:{function}", f"channels.{name}")
    app.command("channels", f"{__name__}.commands:channels")
    app.prompt_section(f"{__name__}.sender:prompt_section")
    app.gauges(f"{__name__}.gauges:count_messages")
    app.doctor_check(f"{__name__}.checks:check_channels")
