"""Prompts of MCP servers for people: `/prompt` lists them and sends one to the agent.

A prompt is text from outside: it goes beside the message of the person who calls it, as a note that names its server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, Origin, harmless, wrapped
from palinurus.extensions.mcp.servers import McpServers, McpSource
from palinurus.operations.services import Services

MAX_PROMPT = 32_000  # characters
LONGEST_LINE = 300
HELP = "/prompt lists the prompts of MCP servers; /prompt SERVER:NAME [key=value …] [words] sends one to the agent."


async def answer_prompt(services: Services, key: SessionKey, words: str, inbound: Inbound) -> str:
    """`/prompt`: lists the prompts, or sends one to the agent; for the owner."""
    if inbound.origin != Origin.OWNER:
        return "Only the owner may use prompts of MCP servers."
    source: McpSource = services.get(McpSource)
    servers = source.of(key.agent)
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
    return wrapped(server_name, harmless("\n\n".join(texts))[:MAX_PROMPT])


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
