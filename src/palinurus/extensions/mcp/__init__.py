"""The Model Context Protocol, both ways: tools of other servers for our agents, and our sessions as tools for others.

Other servers: `settings` names them, `listing` reads and stores which tools they have, `connection` and `transport`
communicate with one, `server` manages one while the process runs, `servers` are all servers of an agent as its tools,
`remote_resources` are their resources and prompts.
For others: `serve` is the server with its tools, `send` sends a message to an agent and waits for the reply,
`resources` are files, transcripts and skills; `endpoint` is the server on the gateway, `authorization` lets clients in
by OAuth, and `routes` are the routes of both.
"""

from __future__ import annotations

from palinurus.runtime.extensions import App


def register(app: App) -> None:
    app.tool_source(f"{__name__}.servers:McpSource")
    app.operation(f"{__name__}.servers:list_mcp_servers", "mcp.list")
    app.operation(f"{__name__}.servers:check_mcp_server", "mcp.test")
    app.operation(f"{__name__}.resources:show_prompt", "mcp.prompt")
    app.http_routes(f"{__name__}.routes:ROUTES")
    app.slash_command("prompt", f"{__name__}.remote_resources:answer_prompt")
    app.command("mcp", f"{__name__}.commands:mcp")
