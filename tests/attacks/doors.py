"""Every door of the gateway and the scope that it needs, written down by hand.

A route or method that is added, or whose scope changes, fails the suite until somebody has put it here on purpose.
"""

from __future__ import annotations

OPEN = "open"
PAGE = "page"  # open too: files that hold nothing of the home, what only our own page may ask, and OAuth for programs

ROUTES: dict[str, tuple[str, ...]] = {
    OPEN: (
        "GET /healthz",
        "GET /health",
        "GET /readyz",
        "GET /ready",
        "GET /startupz",
        "GET /schema",
        "GET /openapi.json",
        "GET /.well-known/oauth-authorization-server",
        "GET /.well-known/oauth-protected-resource",
        "GET /.well-known/oauth-protected-resource/mcp",
        "WEBSOCKET /",  # which lets nobody do anything before `connect`
        "WEBSOCKET /ws",
    ),
    PAGE: (
        "GET /",
        "GET /s/{key:path}",
        "GET /memory",
        "GET /context",
        "GET /files",
        "GET /approvals",
        "GET /channels",
        "GET /usage",
        "GET /runs",
        "GET /logs",
        "GET /config",
        "GET /agents",
        "GET /subagents",
        "GET /plugins",
        "GET /schedule",
        "GET /welcome",
        "GET /login",
        "GET /page/{name:path}",
        "POST /page/login",
        "POST /page/logout",
        "POST /page/csp-report",
        "GET /mcp/authorize",
        "GET /mcp/consent.css",
        "GET /mcp/consent.js",
        "POST /mcp/consent",
        "POST /mcp/register",
        "POST /mcp/revoke",
        "POST /mcp/token",
    ),
    "read": (
        "DELETE /mcp",
        "GET /mcp",
        "GET /metrics",
        "POST /mcp",
        "GET /v1/models",
        "GET /v1/models/{model:path}",
        "GET /v1/responses/{response}",
    ),
    "write": (
        "POST /v1/chat/completions",
        "POST /v1/completions",
        "POST /v1/messages",
        "POST /v1/responses",
        "POST /v1/embeddings",
        "POST /tools/invoke",
    ),
    "approvals": (),
    "pairing": (),
    "admin": (),
}

METHODS: dict[str, str] = {
    "read": """plugins.panel
        agent.events agent.identity.get agent.wait agents.files.get agents.files.list agents.list agents.show
        approvals.grants approvals.list approvals.preview approvals.outside approvals.show audit.show audit.verify
        channels.list channels.logs channels.manifest channels.networks channels.status chat.history
        cron.calendar cron.get cron.list cron.next cron.plan cron.preview cron.runs cron.show cron.status
        heartbeat.status hooks.list hooks.show last-heartbeat node.list question.list skills.status system-presence
        commands.list context.show delivery.get delivery.list health jobs.list logs.tail mcp.list mcp.prompt
        memory.collections.list
        memory.get
        memory.bank.diff memory.beliefs memory.entities memory.entities.show memory.proposals memory.recall
        memory.said memory.search memory.spaces memory.status models.list models.status plugins.doctor
        plugins.info plugins.list plugins.lock route.explain runs.list runs.show
        sandbox.explain sessions.describe sessions.get sessions.list sessions.preview sessions.resolve sessions.search
        sessions.show sessions.subscribe skills.check skills.info skills.list subagents.list
        status status.session tools.catalog tools.effective tools.explain tools.list
        usage.cost usage.series usage.status usage.totals sessions.export webhooks.list webhooks.test
        workspace.diff workspace.list workspace.log
        workspace.read""",
    "write": """agent agent.stop chat.abort chat.send cron.disable cron.enable cron.pause
        cron.resume cron.run heartbeat.run heartbeat.wake delivery.drop delivery.retry jobs.drop jobs.retry
        mcp.test memory.bank.restore memory.entities.merge memory.entities.split
        memory.proposals.accept memory.proposals.reject memory.reflect
        memory.index message.send models.test onboarding.look sandbox.test sessions.abort
        sessions.delete
        sessions.patch sessions.send skills.draft subagents.steer subagents.stop tools.invoke wake""",
    "approvals": """approval.get approval.resolve openclaw.approval.list plugin.approval.list
        approvals.answer approvals.grant approvals.revoke approvals.trust cron.approve exec.approval.get
        exec.approval.list
        exec.approval.resolve exec.approval.waitDecision pairing.approve pairing.list pairing.reject""",
    "pairing": """device.pair.approve device.pair.list device.pair.reject device.pair.remove
        device.token.revoke device.token.rotate node.pair.list""",
    "admin": """agents.bind agents.create agents.delete agents.files.set agents.identity.set agents.unbind agents.update
        audit.erase channels.add channels.remove channels.test cron.add cron.remove cron.update
        heartbeat.disable heartbeat.enable hooks.disable hooks.enable plugins.disable plugins.enable
        config.get config.patch
        config.schema config.set credentials.list credentials.remove credentials.set credentials.test models.set
        workspace.commit workspace.restore chat.inject sessions.compact sessions.reset
        devices.approve devices.list devices.revoke exec.approvals.get
        exec.approvals.set gateway.status gateway.tokens.create gateway.tokens.list gateway.tokens.revoke
        gateway.tokens.rotate sessions.cleanup storage.status""",
}
# For the unix socket.
LOCAL = (
    "agent.submit",
    "backup.copy",
    "forget",
    "gateway.stop",
    "home.export",
    "house.hand_over",
    "ingest.ask",
    "memory.export",
    "memory.watch",
    "migrate.openclaw",
    "page.link",
    "sessions.import",
    "sessions.lines",
    "subagents.watch",
)

# What includes what.
HOLDS: dict[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "write": frozenset({"read", "write"}),
    "approvals": frozenset({"approvals"}),
    "pairing": frozenset({"pairing"}),
    "admin": frozenset({"read", "write", "approvals", "pairing", "admin"}),
}

# What the server says about a message, and no caller.
BOUND = {
    "origin", "sender", "channel", "replyTo", "reply_to", "clientTools", "client_tools", "attended", "notes", "plain",
    "results", "earlier", "owner", "by", "where", "account", "thread", "principal",
}  # fmt: skip
# Questions about a sender that might be, places that the config names, an answer's door that is overwritten, a
# grouping of figures, where the results of a cron job go, which channel is set up or written to.
NOT_BELIEVED = {
    "tools.list": {"sender"},
    "tools.explain": {"sender"},
    "approvals.answer": {"where"},
    "usage.totals": {"by"},
    "cron.add": {"channel"},
    "agents.bind": {"where"},
    "agents.unbind": {"where"},
    "route.explain": {"channel", "account", "thread"},
    "channels.add": {"channel", "account"},
    "channels.logs": {"channel"},
    "channels.manifest": {"channel"},
    "channels.remove": {"channel", "account"},
    "channels.test": {"channel", "account"},
    "message.send": {"channel", "account", "thread"},
}


def routes(*scopes: str) -> list[tuple[str, str, str]]:
    """Scope, method and a path that can be asked for, without the WebSockets; the page's only when it is named."""
    wanted = scopes or tuple(scope for scope in ROUTES if scope != PAGE)
    named = ((scope, *door.split()) for scope in wanted for door in ROUTES[scope])
    return [
        (scope, verb, path.replace("{model:path}", "x").replace("{response}", "x"))
        for scope, verb, path in named
        if verb != "WEBSOCKET"
    ]


def methods(*scopes: str) -> list[tuple[str, str]]:
    return [(scope, name) for scope in scopes or tuple(METHODS) for name in METHODS[scope].split()]
