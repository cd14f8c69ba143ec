"""Resources of MCP servers: one tool that lists and reads them, offered only where a server has some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palinurus.domain.events import Plan
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, ToolSpec, failed
from palinurus.extensions.mcp.server import McpClient

TOOL = "mcp__read_resource"  # of no server: a person can still allow and deny it like theirs
MOST_LISTED = 200
LONGEST_LINE = 300
UNLISTED = "an address that the server did not list, in a turn that has read text from outside"


def resource_tool(servers: Sequence[McpClient]) -> Tool:
    """The tool over the servers that have resources."""
    by_name = {server.settings.name: server for server in servers}
    known: dict[str, set[str]] = {name: set() for name in by_name}  # addresses that the servers have listed

    async def run(_: ToolRun, sent: Mapping[str, Any]) -> ToolOutput:
        server, uri = by_name.get(str(sent.get("server", ""))), sent.get("uri") or ""
        if server is None or not isinstance(uri, str):
            return failed(f"server is one of {', '.join(by_name)}, and uri is a text")
        if uri:
            return await server.shown("resources/read", {"uri": uri}, _as_result)
        return await server.shown("resources/list", {}, lambda answer: _listed(answer, known[server.settings.name]))

    async def prepare(on: ToolRun, sent: Mapping[str, Any]) -> PreparedCall:
        uri = sent.get("uri") or ""
        ask = UNLISTED if uri and uri not in known.get(str(sent.get("server", "")), ()) else ""
        plan = Plan(TOOL, TOOL, arguments=dict(sent))
        return PreparedCall(plan, lambda: run(on, sent), when_untrusted=ask, lasting=True)

    parameters = {
        "type": "object",
        "properties": {
            "server": {"type": "string", "enum": list(by_name)},
            "uri": {"type": "string", "description": "Address of a resource. Without it they are listed."},
        },
        "required": ["server"],
    }
    return Tool(ToolSpec(TOOL, "List or read resources of MCP servers.", parameters), run, prepare, outside=True)


def _listed(answer: Any, known: set[str]) -> dict[str, Any]:
    """A list of resources as a tool result."""
    rows = answer.get("resources") if isinstance(answer, Mapping) else None
    found = [each for each in rows or [] if isinstance(each, Mapping) and isinstance(each.get("uri"), str)]
    known.clear()
    known.update(each["uri"] for each in found[:MOST_LISTED])
    lines = [_line(each) for each in found[:MOST_LISTED]]
    more = [f"[{len(found) - MOST_LISTED} more]"] if len(found) > MOST_LISTED else []
    return {"content": [{"type": "text", "text": "\n".join((*lines, *more)) or "[no resources]"}]}


def _line(sent: Mapping[str, Any]) -> str:
    words = (sent["uri"], *(each for key in ("name", "description", "mimeType") if (each := sent.get(key))))
    return " · ".join(" ".join(str(each).split()) for each in words)[:LONGEST_LINE]


def _as_result(answer: Any) -> dict[str, Any]:
    """The contents of a resource as a tool result."""
    parts = answer.get("contents") if isinstance(answer, Mapping) else None
    return {"content": [_block(each) for each in parts] if isinstance(parts, list) else []}


def _block(part: Any) -> dict[str, Any]:
    match part:
        case {"text": str(text)}:
            return {"type": "text", "text": text}
        case {"blob": str(data), "mimeType": str(kind)} if kind.startswith("image/"):
            return {"type": "image", "data": data}
    return {"type": "blob"}
