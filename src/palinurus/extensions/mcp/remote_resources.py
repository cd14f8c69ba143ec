"""Resources and prompts of MCP servers: one tool that lists and reads resources, and `/prompt` for people.

Both are text from outside. A prompt goes beside the message of the person who calls it, as a note that names its
server. The tool is offered only where a server has resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.events import Plan
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, Origin, harmless, wrapped
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, ToolSpec, failed
from palinurus.extensions.mcp.server import MAX_TEXT, McpClient
from palinurus.operations.services import Services

if TYPE_CHECKING:
    from palinurus.extensions.mcp.servers import McpServers

TOOL = "mcp__read_resource"  # of no server: a person can still allow and deny it like theirs
MOST_LISTED = 200
LONGEST_LINE = 300
MAX_PROMPT = 32_000  # characters
UNLISTED = "an address that the server did not list, in a turn that has read text from outside"
HELP = "/prompt lists the prompts of MCP servers; /prompt SERVER:NAME [key=value …] [words] sends one to the agent."


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


async def answer_prompt(services: Services, key: SessionKey, words: str, inbound: Inbound) -> str:
    """`/prompt`: lists the prompts, or sends one to the agent; for the owner."""
    if inbound.origin != Origin.OWNER:
        return "Only the owner may use prompts of MCP servers."
    servers = _servers(services, key.agent)
    name, _, rest = words.strip().partition(" ")
    if name in ("", "list", "help"):
        lines = [f"{server}:{each.name}{_wants(each.arguments)}  {each.description}".rstrip()[:LONGEST_LINE]
                 for server, each in await servers.prompts()]  # fmt: skip
        return "\n".join((*lines, HELP)) if lines else f"No MCP server has prompts. {HELP}"
    text = await read_prompt(servers, name, rest)
    note = ContextNote(
        "prompt", f"The user calls this prompt for the message.\n\n{text}", name, origin=Origin.OUTSIDE,
        sources=(f"mcp:{name.partition(':')[0]}",),
    )  # fmt: skip
    message = msgspec.structs.replace(
        inbound,
        text=rest.strip() or f"Follow the prompt {name}.",
        idempotency_key=f"{inbound.idempotency_key}:prompt",
        session_key=str(key),
        plain=True,
        notes=(*inbound.notes, note),
    )
    await services.dispatcher.submit(message)
    return f"Sent the prompt {name}."


def _wants(arguments: tuple[str, ...]) -> str:
    return f" ({', '.join(arguments)})" if arguments else ""


async def read_prompt(servers: McpServers, name: str, words: str) -> str:
    """The text of SERVER:NAME, with its arguments from `key=value` and the other words. Raises PalinurusError."""
    server_name, _, prompt_name = name.partition(":")
    server = await servers.find(server_name)
    found = next(
        (each for where, each in await servers.prompts() if (where, each.name) == (server_name, prompt_name)), None
    )
    if found is None:
        raise NotFound(f"{server_name} has no prompt {prompt_name[:80]!r}", hint="/prompt lists them")
    answer = await server.ask("prompts/get", {"name": found.name, "arguments": _given(found.arguments, words)})
    rows = answer.get("messages") if isinstance(answer, Mapping) else None
    texts = [text for each in rows or [] if (text := _said(each))]
    if not texts:
        raise BadRequest(f"{server_name} sent no text for the prompt {prompt_name}")
    return wrapped(server_name, harmless("\n\n".join(texts))[: min(MAX_PROMPT, MAX_TEXT)])


def _given(arguments: tuple[str, ...], words: str) -> dict[str, str]:
    """`key=value` for arguments of that name; all other words are the first argument that was not named."""
    named, others = {}, []
    for word in words.split():
        key, equals, value = word.partition("=")
        if equals and key in arguments:
            named[key] = value
        else:
            others.append(word)
    free = next((each for each in arguments if each not in named), "")
    return named | ({free: " ".join(others)} if free and others else {})


def _said(message: Any) -> str:
    match message:
        case {"role": str(role), "content": {"text": str(text)} | {"resource": {"text": str(text)}}}:
            return text if role == "user" else f"{role}: {text}"
    return ""


def _servers(services: Services, agent: str) -> McpServers:
    from palinurus.extensions.mcp.servers import McpSource

    source: McpSource = services.get(McpSource)
    return source.of(agent)
