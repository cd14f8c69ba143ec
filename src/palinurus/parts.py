"""Everything that is imported by name when it is first used: commands, operations, wires, config sections, extensions.

This is the only table of its kind. It is data: reading it imports nothing, so help, schema and config checks know
what there is, and a command pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from msgspec import Struct

COMMANDS: dict[str, tuple[str, str]] = {  # name -> where it is, and its line in `pal --help`
    "chat": ("palinurus.cli.chat:chat", "Talk with the agent in this terminal."),
    "agent": ("palinurus.cli.agent:agent", "Send one message and print the reply."),
    "agents": ("palinurus.cli.agents:agents", "Add, show, change and remove agents; bind them to channels."),
    "sessions": ("palinurus.cli.sessions:sessions", "List, show and search sessions."),
    "memory": ("palinurus.cli.memory:memory", "Search the agent's memory; manage its index."),
    "workspace": (
        "palinurus.cli.workspace:workspace",
        "Show changes to the agent's files; restore old versions.",
    ),
    "context": ("palinurus.cli.status:context", "Show the parts of the prompt and their cost."),
    "status": ("palinurus.cli.status:status", "Show home, workspace, model, sessions and problems."),
    "models": ("palinurus.cli.models:models", "Choose models, store keys, test them."),
    "tools": ("palinurus.cli.tools:tools", "List tools and who may use them."),
    "skills": ("palinurus.cli.skills:skills", "List, install and publish skills."),
    "gateway": ("palinurus.cli.gateway:gateway", "Serve the home over HTTP and WebSocket; manage access tokens."),
    "devices": ("palinurus.cli.gateway:devices", "Approve and revoke devices that connect to the gateway."),
    "route": ("palinurus.cli.routing:route", "Explain which agent answers a message."),
    "pairing": ("palinurus.cli.routing:pairing", "Approve or refuse unknown people who write on a channel."),
    "approvals": ("palinurus.cli.approvals:approvals", "Answer waiting approvals; manage grants."),
    "sandbox": ("palinurus.cli.tools:sandbox", "Show where commands run; test the sandbox."),
    "audit": ("palinurus.cli.ledger:audit", "Show the audit log of tool calls; verify it."),
    "message": ("palinurus.cli.message:message", "Send a message to a person or a group on a channel."),
    "delivery": ("palinurus.cli.jobs:delivery", "List outgoing messages; retry or drop them."),
    "jobs": ("palinurus.cli.jobs:jobs", "List durable jobs; retry or drop them."),
    "runs": ("palinurus.cli.ledger:runs", "Show what runs did and how long it took."),
    "usage": ("palinurus.cli.ledger:usage", "Show what models used and cost."),
    "logs": ("palinurus.cli.ledger:logs", "Show the log."),
    "doctor": ("palinurus.cli.status:doctor", "Check for problems and say how to fix them."),
    "onboard": ("palinurus.cli.onboard:onboard", "Set up a model: enter a key, or use a model server on this machine."),
    "configure": ("palinurus.cli.onboard:onboard", "Same as onboard (OpenClaw's name for it)."),
    "config": ("palinurus.cli.config:config", "Read and change the config."),
    "setup": ("palinurus.cli.onboard:setup", "Create a home and a workspace."),
    "completion": ("palinurus.cli.shell:completion", "Print the completion script for a shell."),
}
SUBCOMMANDS: dict[str, dict[str, str]] = {  # of groups that are imported without them
    "sessions": {
        name: f"palinurus.cli.session_changes:{name}" for name in ("rename", "delete", "reset", "cleanup", "compact")
    },
    "memory": {"eval": "palinurus.cli.memory_eval:evaluate"},
    "gateway": {"run": "palinurus.cli.gateway_run:run", "call": "palinurus.cli.gateway_call:call"},
}
OPERATIONS: dict[str, list[str]] = {
    family: [f"palinurus.operations.{name}" for name in names.split()]
    for family, names in {
        "agent": "runs",
        "agents": "agents agent_changes bindings workspace",
        "approvals": "approvals trust",
        "audit": "ledger",
        "chat": "session_changes",
        "config": "config",
        "context": "status",
        "credentials": "credentials",
        "delivery": "jobs",
        "devices": "gateway",
        "exec": "exec_approvals",
        "gateway": "gateway",
        "house": "gateway",
        "jobs": "jobs",
        "memory": "memory memory_collections",
        "message": "message",
        "models": "models",
        "onboarding": "models",
        "page": "gateway",
        "pairing": "routing",
        "route": "routing",
        "runs": "runs",
        "sandbox": "tools",
        "sessions": "session_changes session_maintenance session_news sessions",
        "skills": "skills",
        "status": "status",
        "tools": "tools",
        "usage": "ledger",
        "workspace": "workspace",
    }.items()
}  # family -> the modules that hold its operations
SLASH_WORDS = (  # of the core, which no plugin may take; dispatch/commands.py says what each does
    *("abort", "approve", "compact", "context", "elevated", "help", "id", "model", "models", "new", "queue"),
    *("reasoning", "reset", "status", "stop", "think", "trust", "usage", "verbose", "whoami"),
)
WIRES = {  # protocols of models
    "openai-completions": "palinurus.providers.wires.openai:OpenAIProvider",
    "openai-responses": "palinurus.providers.wires.responses:ResponsesProvider",
    "ollama": "palinurus.providers.wires.openai:OpenAIProvider",  # it speaks the OpenAI format under /v1
    "anthropic-messages": "palinurus.providers.wires.anthropic:AnthropicProvider",
    "google-generative-ai": "palinurus.providers.wires.google:GoogleProvider",
}
SMALL_MODEL = "palinurus.providers.smollm.smollm:SmolLM"
_AGENT = "agents.defaults"  # what stands there may stand in every agent's own entry too
_SEARCH = (f"{_AGENT}.memory.search", f"{_AGENT}.memorySearch", "memory.search")
SECTIONS: dict[str, tuple[str, ...]] = {  # sections of the config -> where they stand, the nearest place first
    "palinurus.config.agents:AgentSettings": (_AGENT,),
    "palinurus.config.agents:AgentEntry": (_AGENT,),
    "palinurus.config.agents:ListedAgent": ("agents.list[]",),
    "palinurus.config.agents:SessionSettings": ("session",),
    "palinurus.config.agents:QueueOptions": ("messages.queue",),
    "palinurus.config.agents:EnvOptions": ("env",),
    "palinurus.dispatch.settings:BindingOptions": ("bindings[]",),
    "palinurus.dispatch.settings:BroadcastOptions": ("broadcast",),
    "palinurus.dispatch.settings:ChannelSettings": ("channels.*",),
    "palinurus.dispatch.settings:CommandOptions": ("commands",),
    "palinurus.dispatch.settings:GroupChatOptions": (f"{_AGENT}.groupChat", "messages.groupChat"),
    "palinurus.dispatch.settings:AccessGroupOptions": ("accessGroups.*",),
    "palinurus.dispatch.reply_settings:MessageSettings": ("messages",),
    "palinurus.dispatch.reply_settings:StreamSettings": (_AGENT,),
    "palinurus.context.settings:CompactionSettings": (f"{_AGENT}.compaction",),
    "palinurus.context.settings:PruneSettings": (f"{_AGENT}.contextPruning",),
    "palinurus.context.settings:StartupSettings": (f"{_AGENT}.startupContext",),
    "palinurus.sessions.settings:MaintenanceSettings": ("session.maintenance",),
    "palinurus.storage.settings:StorageSettings": ("storage",),
    "palinurus.gateway.settings:GatewaySettings": ("gateway",),
    "palinurus.gateway.settings:GatewaySecrets": ("gateway.auth",),
    "palinurus.gateway.settings:OtelOptions": ("diagnostics.otel",),
    "palinurus.memory.settings:MemoryEngine": ("memory",),
    "palinurus.providers.settings:ModelsOptions": ("models",),
    "palinurus.skills.settings:SkillsOptions": ("skills",),
    "palinurus.tools.settings:AllTools": ("tools",),
    "palinurus.tools.settings:AgentToolOptions": (f"{_AGENT}.tools", "tools"),
    "palinurus.tools.settings:ElevatedSettings": (f"{_AGENT}.tools.elevated", "tools.elevated"),
    "palinurus.tools.settings:ExecSettings": (f"{_AGENT}.tools.exec", "tools.exec"),
    "palinurus.tools.settings:FetchSettings": ("tools.web.fetch",),
    "palinurus.tools.settings:SearchSettings": ("tools.web.search",),
    "palinurus.sandbox.settings:SandboxSettings": (f"{_AGENT}.sandbox",),
    "palinurus.tools.settings:McpOptions": ("mcp",),
    "palinurus.memory.settings:MemoryChoices": _SEARCH,
    "palinurus.memory.settings:MemorySettings": _SEARCH,
    "palinurus.skills.settings:SkillLimit": ("skills.limits",),
}
CONFIG_CHECKS = dict.fromkeys(  # top-level keys -> a check over several sections, which may not be there
    ("bindings", "broadcast", "channels"), "palinurus.dispatch.settings:check_routes"
)
PARTS_OF_SECTIONS: dict[str, dict[str, str]] = {  # section -> older places of a part of it, and which part
    "palinurus.memory.settings:MemoryChoices": {"memory.qmd.scope": "scope"},
    "palinurus.memory.settings:MemorySettings": {
        "memory.qmd.limits": "limits",
        "memory.qmd.sessions.retentionDays": "sync.sessions.retentionDays",
        "memory.qmd.update.debounceMs": "sync.settleMs",
    },
    "palinurus.skills.settings:SkillLimit": {f"{_AGENT}.skillsLimits.maxSkillsPromptChars": "maxSkillsPromptChars"},
}


class Extension(Struct, frozen=True):
    """What is known of an extension before it is imported."""

    name: str
    module: str  # that has `register`
    commands: dict[str, str] = {}  # "backup", or "skills install" of a group -> its line in the help
    operations: tuple[str, ...] = ()  # names; if it is `local` also whole families: "backup" is also "backup.copy"
    routes: str = ""  # of the gateway: the part of the config without which it brings none; "*": it brings some anyway
    tools: str = ""  # the same for tools: "mcp.servers"
    config: dict[str, tuple[str, ...]] = {}  # sections of the config, "module:Section" -> where they stand in the file
    before: str = ""  # the command of the core before which its own stand in the help; else they stand last
    local: bool = False  # its operations are only for those on the machine: a gateway need not load it
    jobs: tuple[str, ...] = ()  # kinds that it does: it is loaded when one of these waits
    slash_commands: dict[str, tuple[str, str]] = {}  # "subagents" -> "/subagents [list]" and its line in /help
    embedders: tuple[str, ...] = ()  # providers whose embedders it has
    memory_backends: dict[str, str] = {}  # "qmd" -> "module:open", a memory.backend.OpenBackend
    databases: dict[str, str] = {}  # "postgresql" of storage.url -> "module:open", a storage.database.OpenDatabase
    text_places: tuple[str, ...] = ()  # where places are declared that hold words: "module:name"
    hooks: tuple[str, ...] = ()  # events or families that it listens to, "*": all; it is loaded when one happens
    hooks_need: tuple[
        str, ...
    ] = ()  # where one must be for that: part of the config, or "name/" in the home; (): no need
    in_use: str = ""  # a query of holder.sql: only if it says yes the two below are called
    starts: str = ""  # "module:name" of `await start(services)`: in a process that stays, when it opens the home
    status: str = ""  # "module:name" of `await status(services)`: a line of `pal status`
    configured_by: tuple[str, ...] = ()  # sections without which it runs no service and adds nothing to prompts; "*"
    wires: tuple[str, ...] = ()  # protocols of models that it speaks
    channels: dict[str, dict[str, Any]] = {}  # networks that it brings -> what people are told of each
    slots: tuple[str, ...] = ()  # that it has: contextEngine, sandbox, browser
    tool_names: tuple[str, ...] = ()  # of a plugin: they are in group:plugins
    host: str = ""  # "module:name" of what registers it instead, because it is somebody else's code: a plugin


def _in_group(group: str, names: str) -> dict[str, str]:
    """A group shows the line that a command itself has."""
    return {f"{group} {name}": "" for name in names.split()}


def _in_family(family: str, names: str) -> tuple[str, ...]:
    return tuple(f"{family}.{name}" for name in names.split())


_CHANNELS = "palinurus.extensions.channels.settings"
_NETWORKS = {  # names of channels -> their settings
    "telegram": f"{_CHANNELS}:TelegramSettings",
    "discord": f"{_CHANNELS}:DiscordSettings",
    "slack": f"{_CHANNELS}:SlackSettings",
    "whatsapp": f"{_CHANNELS}:WhatsAppSettings",
    "email": f"{_CHANNELS}:EmailSettings",
    "custom": f"{_CHANNELS}:WebhookChannelSettings",
}
_HEARTBEAT = "palinurus.extensions.schedule.heartbeat_settings:HeartbeatSettings"
EXTENSIONS = (
    Extension("openai_api", "palinurus.extensions.openai_api", routes="*"),
    Extension(
        "subagents",
        "palinurus.extensions.subagents",
        commands={"subagents": "List subagents; stop or steer one."},
        operations=_in_family("subagents", "list watch stop steer"),
        tools="*",
        config={
            "palinurus.extensions.subagents.settings:SubagentSettings": (f"{_AGENT}.subagents",),
            "palinurus.extensions.subagents.settings:SessionToolSettings": ("tools.sessions",),
            "palinurus.extensions.subagents.settings:AgentToAgentSettings": ("tools.agentToAgent",),
        },
        before="approvals",
        jobs=("announce", "subagents.deadline", "subagents.archive"),
        slash_commands={
            "subagents": ("/subagents [list|stop|steer] [name] [message]", "list subagents; stop or steer one")
        },
    ),
    Extension(
        "schedule",
        "palinurus.extensions.schedule",
        commands={
            "cron": "Reminders and cron jobs: run the agent at set times.",
            "heartbeat": "Run the agent at intervals with the list in HEARTBEAT.md.",
        },
        operations=_in_family(
            "cron",
            "add approve calendar disable enable get list next pause plan preview remove resume run runs show status "
            "update",
        )
        + _in_family("heartbeat", "status run enable disable wake")
        + ("wake", "last-heartbeat"),  # OpenClaw's names
        before="approvals",
        tools="*",
        config={
            "palinurus.extensions.schedule.settings:CronSettings": ("cron",),
            _HEARTBEAT: (f"{_AGENT}.heartbeat",),
        },
        configured_by=(_HEARTBEAT,),
        jobs=("schedule.due",),
        slash_commands={
            "remind": ("/remind [me] WHEN to WHAT, list, remove ID", "remind you: in 20 minutes, tomorrow at 9")
        },
        text_places=("palinurus.extensions.schedule.text_places:PLACES",),
        in_use="holder.cron_jobs",
        starts="palinurus.extensions.schedule.due:plan_missing",
        status="palinurus.extensions.schedule.operations:status_line",
    ),
    Extension(
        "hooks",
        "palinurus.extensions.hooks",
        commands={"hooks": "List hooks; enable and disable them."},
        operations=("hooks.list", "hooks.show", "hooks.enable", "hooks.disable"),
        config={"palinurus.extensions.hooks.settings:InternalHookSettings": ("hooks.internal",)},
        before="approvals",
        hooks=("*",),
        hooks_need=("hooks.internal", "hooks/"),
    ),
    Extension(
        "plugins",
        "palinurus.extensions.plugins",
        commands={"plugins": "List, install and write plugins."},
        operations=_in_family("plugins", "list info panel enable disable prepare install uninstall lock new doctor"),
        config={"palinurus.extensions.plugins.settings:PluginSettings": ("plugins",)},
        before="approvals",
    ),
    Extension(
        "dashboard",
        "palinurus.extensions.dashboard",
        commands={
            "up": "Start the gateway, open the dashboard, and chat in this terminal.",
            "dashboard": "Open the dashboard in a browser.",
        },
        routes="*",
        before="agent",
    ),
    Extension(
        "mcp",
        "palinurus.extensions.mcp",
        commands={"mcp": "Test MCP servers that provide tools; serve sessions over MCP."},
        operations=_in_family("mcp", "list prompt test"),
        routes="*",
        tools="mcp.servers",
        before="approvals",
        slash_commands={"prompt": ("/prompt [server:name] [words]", "use a prompt of an MCP server")},
    ),
    Extension(
        "webhooks",
        "palinurus.extensions.webhooks",
        commands={"webhooks": "List webhooks; try their templates."},
        operations=("webhooks.list", "webhooks.test"),
        routes="hooks.enabled",
        config={"palinurus.extensions.webhooks.settings:WebhookSettings": ("hooks",)},
        before="approvals",
        jobs=("webhooks.post",),
    ),
    Extension(
        "channels",
        "palinurus.extensions.channels",
        commands={"channels": "Connect chat networks: add, list, test and remove accounts."},
        operations=_in_family("channels", "list status networks manifest add test remove logs"),
        routes="channels",
        config={
            f"{_CHANNELS}:ReplySettings": ("channels.*", "channels.*.accounts.*"),
            **{where: (f"channels.{name}", f"channels.{name}.accounts.*") for name, where in _NETWORKS.items()},
            f"{_CHANNELS}:TranscriptionSettings": ("tools.media.audio",),
        },
        configured_by=(f"{_CHANNELS}:ReplySettings",),
        before="route",
    ),
    Extension(
        "knowledge",
        "palinurus.extensions.knowledge",
        tools="*",
        config={
            "palinurus.extensions.knowledge.settings:ReflectionSettings": (
                "memory.reflect",
                "plugins.entries.memory-core.config.dreaming",
            ),
            "palinurus.extensions.knowledge.core_block:CoreBlockSettings": ("memory.core",),
        },
        hooks=("memory:noted",),
        slash_commands={
            "proposals": (
                "/proposals [accept ID [words]|reject ID]",
                "lines proposed for MEMORY.md; settle one",
            )
        },
        configured_by=("palinurus.extensions.knowledge.settings:ReflectionSettings",),
        jobs=("memory.reflection",),
        commands={
            "memory bank": "Show or undo changes to the pages in `bank/`.",
            "memory beliefs": "Show beliefs and how sure they are.",
            "memory proposals": "Accept or reject lines that a reflection proposes for MEMORY.md.",
            "memory reflect": "Write the pages of the bank from the facts.",
            "memory recall": "Show facts and lines of notes that answer a question.",
            "memory entities": "Show people, places and things that facts name.",
        },
        operations=_in_family(
            "memory",
            "recall entities entities.show entities.merge entities.split beliefs reflect proposals proposals.accept"
            " proposals.reject bank.diff bank.restore",
        ),
        text_places=("palinurus.extensions.knowledge.text_places:PLACES",),
    ),
    Extension(
        "migrate",
        "palinurus.extensions.migrate",
        commands={
            "migrate": "Import the home of another program, such as OpenClaw.",
            "export": "Export the home: as a folder for OpenClaw, or as one file.",
            "ingest": "Build a wiki from a home: people, projects, decisions.",
            **_in_group("sessions", "export import"),
        },
        operations=("migrate", "home.export", "ingest", "sessions.import", "sessions.lines"),
        local=True,
        before="doctor",
        text_places=("palinurus.extensions.migrate.text_places:PLACES",),
    ),
    Extension(
        "backup",
        "palinurus.extensions.backup",
        commands={"backup": "Make, verify and restore backups of the home."},
        operations=("backup",),
        local=True,
        before="doctor",
        text_places=("palinurus.extensions.backup.text_places:PLACES",),
    ),
    Extension(
        "forget",
        "palinurus.extensions.forget",
        commands={"forget": "Remove words or a whole session from everything stored."},
        operations=("forget",),
        local=True,
        before="doctor",
    ),
    Extension(
        "postgres",
        "palinurus.extensions.postgres",
        commands={
            "storage": "Show where the home is kept.",
            **_in_group("migrate", "sqlite-to-postgres postgres-to-sqlite"),
        },
        operations=("storage.status",),
        databases=dict.fromkeys(("postgresql", "postgres"), "palinurus.extensions.postgres.engine:open_database"),
        before="doctor",
    ),
    Extension(
        "qmd",
        "palinurus.extensions.qmd",
        config={"palinurus.extensions.qmd.settings:QmdSettings": ("memory.qmd",)},
        memory_backends={"qmd": "palinurus.extensions.qmd.backend:open_qmd"},
        text_places=("palinurus.extensions.qmd.text_places:PLACES",),
    ),
    Extension(
        "embedders",
        "palinurus.extensions.embedders",
        embedders=("openai", "gemini", "voyage", "mistral", "ollama", "openai-compatible", "local"),
        jobs=("memory.embedding-batch",),
    ),
    Extension(
        "skill_registry",
        "palinurus.extensions.skill_registry",
        commands={
            "registry": "Host a registry of skills; manage its tokens.",
            **_in_group("skills", "search install update verify publish draft drafts accept"),
        },
        operations=("skills.draft",),
        before="gateway",
    ),
)


def resolve(where: str) -> Any:
    """What stands at "module:name"."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
