"""Settings of the networks, under OpenClaw's names. What all channels share is in dispatch/settings.py.

Each section stands at `channels.<name>` and in each of its accounts. This module imports no library of a network.
"""

from typing import Annotated, Any, Literal, get_args

from palinurus.config.section import OptionForm, Secret, Section, option
from palinurus.dispatch.channels import ChannelContext, RequestRetry
from palinurus.dispatch.settings import DEFAULT_ACCOUNT
from palinurus.domain.errors import ConfigError

StreamMode = Literal["off", "partial", "block", "progress"]
ReplyMode = Literal["off", "first", "all"]


def _read_mode(said: Any) -> str:
    """`"partial"`, `{"mode": "partial"}`, or true and false as older releases had it."""
    mode = said.get("mode", "") if isinstance(said, dict) else said
    mode = {True: "partial", False: "off"}.get(mode, mode) if isinstance(mode, bool) else mode
    if mode not in (*get_args(StreamMode), ""):
        raise ValueError(f"should be {', '.join(get_args(StreamMode))}")
    return str(mode)


STREAM_MODE = OptionForm(str | bool | dict[str, Any], _read_mode, lambda mode: mode)


class ReplySettings(Section, frozen=True):
    """How replies travel on a channel, or with one of its accounts."""

    streaming: Annotated[
        str,
        option(
            "What is shown before a reply is complete: off, partial (the text so far), progress (the tools that run),"
            " block (finished parts are sent). Unset: progress on Telegram and Slack, else off.",
            form=STREAM_MODE,
            also=("streamMode",),
        ),
    ] = ""
    block_streaming: Annotated[
        bool | None,
        option("Whether finished parts are sent. Unset: agents.defaults.blockStreamingDefault on Telegram."),
    ] = None
    chunk_mode: Annotated[
        Literal["length", "newline"], option("newline: a new message at each blank line between paragraphs.")
    ] = "length"
    text_chunk_limit: Annotated[
        int | None, option("Characters of one message. Unset, or more than the network allows: its limit.", ge=100)
    ] = None
    reply_to_mode: Annotated[
        ReplyMode | None, option("Which messages of a reply quote what they answer. Unset: first in groups, else off.")
    ] = None
    response_prefix: Annotated[str, option("Written before each reply.")] = ""
    ack_reaction: Annotated[
        str | None, option("An emoji on a message that was accepted. Unset: messages.ackReaction; empty: none.")
    ] = None
    media_max_mb: Annotated[float, option("Megabytes of one received file.", gt=0, le=200)] = 20
    media_inbox_mb: Annotated[
        float, option("Megabytes of all files in media/inbox of a workspace; what comes then is not stored.", gt=0)
    ] = 2000


class TranscriptionSettings(Section, frozen=True):
    """An OpenAI-compatible server that writes down voice messages: POST <baseUrl>/audio/transcriptions."""

    base_url: Annotated[str, option("Its address, such as http://127.0.0.1:8000/v1. Unset: voice is stored only.")] = ""
    api_key: Annotated[Secret | None, option("Its key.")] = None
    model: Annotated[str, option("The model.")] = "whisper-1"
    language: Annotated[str, option("The language that is spoken, such as en. Unset: the server finds out.")] = ""
    timeout_seconds: Annotated[int, option("How long one message may take.", ge=1, le=600)] = 60


class RetrySettings(Section, frozen=True):
    """How often one request to the network is tried. Afterwards its delivery waits as a job."""

    attempts: Annotated[int, option("Attempts, the first included.", ge=1, le=10)] = 3
    min_delay_ms: Annotated[
        int | None, option("The first pause; it doubles. Unset: 400 on Telegram, else 500.", ge=0)
    ] = None
    max_delay_ms: Annotated[int, option("The longest pause.", ge=0, le=300_000)] = 30_000
    jitter: Annotated[float, option("A random part of each pause, 0 to 1.", ge=0, le=1)] = 0.1

    def policy(self, usual_ms: int = 500) -> RequestRetry:
        first = usual_ms if self.min_delay_ms is None else self.min_delay_ms
        return RequestRetry(self.attempts, first / 1000, self.max_delay_ms / 1000, self.jitter)


class NetworkSettings(Section, frozen=True):
    """What the adapter of every network has."""

    retry: Annotated[RetrySettings, option("Retries of single requests.")] = RetrySettings()


def required_secret(context: ChannelContext, value: Secret | None, key: str, hint: str, variable: str = "") -> str:
    """A secret of an account; that of the default account may be in the environment. Raises ConfigError."""
    own = context.env.get(variable, "") if context.account == DEFAULT_ACCOUNT else ""
    if not (found := (context.secret(value) or own).strip()):
        raise ConfigError(f"channels.{context.channel}.{key} of the account {context.account} is not set", hint=hint)
    return found


class TelegramSettings(NetworkSettings, frozen=True):
    """Telegram: a bot of @BotFather."""

    bot_token: Annotated[Secret | None, option("The bot's token. Unset: tokenFile, then TELEGRAM_BOT_TOKEN.")] = None
    token_file: Annotated[str, option("A file with the token.")] = ""
    api_root: Annotated[str, option("The address of the Bot API.")] = "https://api.telegram.org"
    webhook_url: Annotated[
        str, option("The public address that Telegram posts updates to. Unset: they are polled.")
    ] = ""
    webhook_secret: Annotated[Secret | None, option("What Telegram sends with each update; needed for webhookUrl.")] = (
        None
    )
    webhook_path: Annotated[str, option("The path of the gateway for it.")] = "/telegram-webhook"


class DiscordSettings(NetworkSettings, frozen=True):
    """Discord: a bot of the developer portal."""

    token: Annotated[Secret | None, option("The bot's token. Unset: DISCORD_BOT_TOKEN.")] = None
    api_root: Annotated[str, option("The address of the REST API.")] = "https://discord.com/api/v10"
    gateway_url: Annotated[str, option("The address of Discord's gateway. Unset: as the REST API says.")] = ""


class SlackSettings(NetworkSettings, frozen=True):
    """Slack: an app of api.slack.com/apps."""

    bot_token: Annotated[Secret | None, option("The token xoxb-… of the bot. Unset: SLACK_BOT_TOKEN.")] = None
    app_token: Annotated[Secret | None, option("The token xapp-… for Socket Mode. Unset: SLACK_APP_TOKEN.")] = None
    signing_secret: Annotated[
        Secret | None, option("Signs requests of Slack; needed for mode http. Unset: SLACK_SIGNING_SECRET.")
    ] = None
    mode: Annotated[Literal["socket", "http"], option("Whether we connect to Slack, or Slack posts to us.")] = "socket"
    webhook_path: Annotated[str, option("The path of the gateway for mode http.")] = "/slack/events"
    api_root: Annotated[str, option("The address of the Web API.")] = "https://slack.com/api"


class WhatsAppSettings(NetworkSettings, frozen=True):
    """WhatsApp: a number of the Cloud API."""

    access_token: Annotated[Secret | None, option("The token of the app. Unset: WHATSAPP_ACCESS_TOKEN.")] = None
    phone_number_id: Annotated[str, option("The id of the number, as the app's page shows it.", text=True)] = ""
    app_secret: Annotated[Secret | None, option("Signs requests of WhatsApp. Unset: WHATSAPP_APP_SECRET.")] = None
    verify_token: Annotated[Secret | None, option("What the app's page asks for when the webhook is set up.")] = None
    webhook_path: Annotated[str, option("The path of the gateway for the webhook.")] = "/whatsapp-webhook"
    api_root: Annotated[str, option("The address of the Graph API, with its version.")] = (
        "https://graph.facebook.com/v23.0"
    )


LOGIN_HINT = (
    "set channels.email.user and channels.email.password; some providers want a password for apps, which their page of "
    "security settings makes"
)


class MailServer(Section, frozen=True):
    """A server of mail."""

    host: Annotated[str, option("Its name.")] = ""
    port: Annotated[int, option("Its port. 0: the usual one.", ge=0, le=65535)] = 0
    security: Annotated[Literal["tls", "starttls", "none"], option("none is only allowed on this machine.")] = "tls"


class EmailSettings(NetworkSettings, frozen=True):
    """E-mail: a mailbox that is read over IMAP and answers over SMTP."""

    address: Annotated[str, option("The address of the agent.")] = ""
    user: Annotated[str, option("The user's name on both servers. Unset: the address.")] = ""
    password: Annotated[Secret | None, option("The password for both servers. Unset: EMAIL_PASSWORD.")] = None
    auth: Annotated[
        Literal["password", "xoauth2"],
        option("xoauth2: password is an OAuth access token, read anew for each connection, as from a file."),
    ] = "password"
    imap: Annotated[MailServer, option("Where mail is read.")] = MailServer()
    smtp: Annotated[MailServer, option("Where mail is sent.")] = MailServer()
    folder: Annotated[str, option("The folder that is read.")] = "INBOX"
    authserv_id: Annotated[
        str, option("Whose Authentication-Results are believed: the name that the receiving server writes in them.")
    ] = ""
    verify_dkim: Annotated[bool, option("Check DKIM signatures ourselves: for servers that write no results.")] = False
    poll_seconds: Annotated[
        int, option("How often to look for mail where the server cannot tell of it (IDLE).", ge=1, le=86_400)
    ] = 60


class WebhookChannelSettings(NetworkSettings, frozen=True):
    """A channel for programs of one's own: signed requests in both directions."""

    secret: Annotated[Secret | None, option("Signs requests in both directions.")] = None
    send_url: Annotated[str, option("Where messages are posted to.")] = ""
    webhook_path: Annotated[str, option("The path of the gateway for received messages.")] = "/channel-webhook"


WEBHOOK_PATHS: dict[str, dict[str, str]] = {  # channel -> key of its path below the gateway, and the usual one
    "telegram": {"webhookPath": TelegramSettings().webhook_path},
    "slack": {"webhookPath": SlackSettings().webhook_path},
    "whatsapp": {"webhookPath": WhatsAppSettings().webhook_path},
    "custom": {"webhookPath": WebhookChannelSettings().webhook_path},
}
