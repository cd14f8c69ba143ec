"""The networks that there are adapters for: where each is, what has to be installed for it, and how a person sets an
account up. It is data."""

from __future__ import annotations

from msgspec import Struct, convert

from palinurus.runtime.extensions import LOADED


class SetupField(Struct, frozen=True, rename="camel"):
    """What a person must enter."""

    key: str  # of the config, below the account
    prompt: str
    secret: bool = False
    required: bool = True


class Network(Struct, frozen=True):
    adapter: str = (
        ""  # "module:name" of a Channel; imported when an account is configured; of a plugin: it registers one
    )
    title: str = ""
    extra: str = ""  # of our packaging, that brings its library
    steps: tuple[str, ...] = ()  # what to do on the network first
    fields: tuple[SetupField, ...] = ()
    afterwards: str = ""
    manifest: str = ""  # "module:name" of what makes a document of our commands that describes the app to the network


def networks() -> dict[str, Network]:
    """Ours, and those of plugins."""
    return {**NETWORKS, **{name: convert(row, Network) for name, row in LOADED.network_rows().items()}}


_HERE = "palinurus.extensions.channels"
NETWORKS: dict[str, Network] = {
    "telegram": Network(
        f"{_HERE}.telegram.channel:TelegramChannel",
        "Telegram",
        "telegram",
        (
            "In Telegram, write /newbot to @BotFather and choose a name.",
            "For groups: /setprivacy, Disable, if the bot should read more than what mentions it.",
        ),
        (SetupField("botToken", "Token that @BotFather gave you", secret=True),),
        "Write to your bot. It answers with a pairing code.",
    ),
    "discord": Network(
        f"{_HERE}.discord.channel:DiscordChannel",
        "Discord",
        "discord",
        (
            "At discord.com/developers/applications: New Application, then Bot, Reset Token.",
            "On the same page, switch on Message Content Intent.",
            "OAuth2, URL Generator: scopes bot and applications.commands; open the address to invite the bot.",
        ),
        (SetupField("token", "Token of the bot", secret=True),),
        "Write to the bot directly. It answers with a pairing code.",
    ),
    "slack": Network(
        f"{_HERE}.slack.channel:SlackChannel",
        "Slack",
        "slack",
        (
            "At api.slack.com/apps: Create New App, From a manifest (`pal channels manifest slack` prints one).",
            "Basic Information, App-Level Tokens: generate one with connections:write.",
            "Install App: install it to your workspace.",
        ),
        (
            SetupField("botToken", "Bot token, xoxb-…", secret=True),
            SetupField("appToken", "App-level token, xapp-…", secret=True),
        ),
        "Write to the app directly. It answers with a pairing code.",
        f"{_HERE}.slack.manifest:slack_manifest",
    ),
    "whatsapp": Network(
        f"{_HERE}.whatsapp.channel:WhatsAppChannel",
        "WhatsApp",
        "whatsapp",
        (
            "At developers.facebook.com: an app of the type Business with the product WhatsApp.",
            "API Setup shows the id of the number; a system user of the business gives a permanent token.",
            "App settings, Basic shows the app secret.",
            "The gateway must be reachable by https: Configuration, Webhook takes its address with /whatsapp-webhook.",
        ),
        (
            SetupField("phoneNumberId", "Id of the phone number"),
            SetupField("accessToken", "Access token", secret=True),
            SetupField("appSecret", "App secret", secret=True),
            SetupField("verifyToken", "Verify token: any text, the same as in the app's webhook settings", secret=True),
        ),
        "Write to the number. It answers with a pairing code.",
    ),
    "email": Network(
        f"{_HERE}.email.channel:EmailChannel",
        "E-mail",
        "email",
        ("A mailbox of its own for the agent, with IMAP and SMTP, is best.",),
        (
            SetupField("address", "Address of the agent"),
            SetupField("password", "Password for IMAP and SMTP", secret=True),
            SetupField("imap.host", "IMAP server"),
            SetupField("smtp.host", "SMTP server"),
            SetupField("authservId", "Name of the receiving server in Authentication-Results (such as mx.example.org)"),
        ),
        "Add your address: pal config set channels.email.allowFrom '[\"you@example.org\"]'",
    ),
    "custom": Network(
        f"{_HERE}.webhook:WebhookChannel",
        "Programs of your own",
        "",
        ("For programs of your own: they post signed messages, and replies are posted to them.",),
        (
            SetupField("secret", "Secret that signs requests in both directions", secret=True),
            SetupField("sendUrl", "Address that messages are posted to"),
        ),
        "docs/channels.md shows a message.",
    ),
}
