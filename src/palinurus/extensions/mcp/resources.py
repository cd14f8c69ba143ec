"""What other agents are served besides tools: files of the workspaces and transcripts to read, skills as prompts.

An address is `palinurus://workspace/AGENT/PATH` or `palinurus://sessions/KEY`. What is behind it is read by the same
operations as everywhere, so boundary and scopes are theirs. Guests get none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from msgspec import Struct

from palinurus.domain.errors import NotFound, PalinurusError
from palinurus.operations.agents import list_agents
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.operations.sessions import export_session, list_sessions
from palinurus.operations.skills import list_skills
from palinurus.operations.table import OperationClient
from palinurus.operations.workspace import list_folder, read_text
from palinurus.skills.use import instructions

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext

SCHEME = "palinurus://"
FOLDERS = (".", "memory")
MOST_FILES = 100  # of one folder that are listed; others are read by their address
MOST_SESSIONS = 50
MAX_TEXT = 1024 * 1024  # characters of one resource
NOT_FOUND = -32002  # the protocol's error for a resource
MARKDOWN = "text/markdown"


class SkillPrompt(Struct, frozen=True):
    name: str
    description: str
    text: str


@operation("mcp.prompt", scope="read")
async def show_prompt(services: Services, name: str, words: str = "", agent: str = "") -> SkillPrompt:
    """A skill as a message for a model."""
    skills = services.skills(agent or services.agents.default)

    def read() -> SkillPrompt:
        found = skills.listing().commands.get(name)
        if found is None:
            raise NotFound(f"there is no skill {name[:80]!r}", hint="`pal skills list` shows them")
        return SkillPrompt(name, found.about.description, f"{instructions(found)}\n\n{words}".strip())

    return await asyncio.to_thread(read)


async def list_resources(client: OperationClient) -> list[types.Resource]:
    import mcp_types as types

    found = []
    for agent in (await client.call(list_agents, list_agents.params())).agents:
        for folder in FOLDERS:
            for path, size in await _files(client, agent.id, folder):
                uri = f"{SCHEME}workspace/{quote(agent.id)}/{quote(path)}"
                found.append(types.Resource(uri=uri, name=f"{agent.id}: {path}", mime_type=MARKDOWN, size=size))
    for session in (await client.call(list_sessions, list_sessions.params(limit=MOST_SESSIONS))).sessions:
        uri = f"{SCHEME}sessions/{quote(session.key, safe='')}"
        found.append(types.Resource(uri=uri, name=f"session {session.label or session.key}", mime_type=MARKDOWN))
    return found


async def _files(client: OperationClient, agent: str, folder: str) -> list[tuple[str, int]]:
    try:
        found = await client.call(list_folder, list_folder.params(agent_id=agent, path=folder))
    except PalinurusError:  # this workspace has no such folder
        return []
    files = [(each.path, each.size) for each in found.entries if not each.is_directory and each.name.endswith(".md")]
    return files[-MOST_FILES:]


async def read_resource(client: OperationClient, uri: str) -> str:
    """Raises PalinurusError."""
    kind, _, rest = uri.removeprefix(SCHEME).partition("/") if uri.startswith(SCHEME) else ("", "", "")
    agent, _, path = rest.partition("/")
    if kind == "workspace" and path:
        file = await client.call(read_text, read_text.params(agent_id=unquote(agent), path=unquote(path)))
        if file.binary:
            raise NotFound(f"{file.path} is not text")
        text, cut = file.text, file.truncated
    elif kind == "sessions" and rest and not path:
        exported = await client.call(export_session, export_session.params(session_key=unquote(rest)))
        text, cut = exported.content, False
    else:
        hint = f"addresses begin with {SCHEME}workspace/ or {SCHEME}sessions/"
        raise NotFound(f"there is no resource {uri[:120]!r}", hint=hint)
    more = len(text) - MAX_TEXT
    return f"{text[:MAX_TEXT]}\n[… {more:,} more characters …]" if more > 0 else f"{text}\n[…]" if cut else text


class ResourceHandlers:
    """Answers the package's server for resources and prompts. `client_of` gives nothing for a guest."""

    def __init__(self, client_of: Callable[[ServerRequestContext[Any]], OperationClient | None]) -> None:
        self._client = client_of

    def by_name(self) -> dict[str, Any]:
        return {
            "on_list_resources": self._resources,
            "on_list_resource_templates": self._templates,
            "on_read_resource": self._read,
            "on_list_prompts": self._prompts,
            "on_get_prompt": self._prompt,
        }

    async def _resources(self, context: Any, _: object) -> types.ListResourcesResult:
        import mcp_types as types

        client = self._client(context)
        return types.ListResourcesResult(resources=await list_resources(client) if client else [])

    async def _templates(self, context: Any, _: object) -> types.ListResourceTemplatesResult:
        import mcp_types as types

        files, sessions = f"{SCHEME}workspace/{{agent}}/{{+path}}", f"{SCHEME}sessions/{{key}}"
        rows = (("A file of an agent's workspace", files), ("The transcript of a session", sessions))
        found = [types.ResourceTemplate(name=name, uri_template=uri, mime_type=MARKDOWN) for name, uri in rows]
        return types.ListResourceTemplatesResult(resource_templates=found if self._client(context) else [])

    async def _read(self, context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        import mcp_types as types
        from mcp import MCPError

        client, uri = self._client(context), str(params.uri)
        try:
            text = await read_resource(client, uri) if client else ""
        except PalinurusError as error:
            raise MCPError(NOT_FOUND, str(error)) from None
        if client is None:
            raise MCPError(NOT_FOUND, "guests read no resources")
        shown = types.TextResourceContents(uri=uri, mime_type=MARKDOWN, text=text)
        return types.ReadResourceResult(contents=[shown])

    async def _prompts(self, context: Any, _: object) -> types.ListPromptsResult:
        import mcp_types as types

        client = self._client(context)
        skills = (await client.call(list_skills, list_skills.params())).skills if client else ()
        words = types.PromptArgument(name="words", description="what it is about", required=False)
        usable = [each for each in skills if each.usable and each.command]
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(name=each.command, description=each.description, arguments=[words]) for each in usable
            ]
        )

    async def _prompt(self, context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        import mcp_types as types
        from mcp import MCPError

        client, words = self._client(context), (params.arguments or {}).get("words", "")
        if client is None:
            raise MCPError(types.INVALID_PARAMS, "guests get no prompts")
        try:
            found = await client.call(show_prompt, show_prompt.params(name=params.name, words=words))
        except PalinurusError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        said = types.PromptMessage(role="user", content=types.TextContent(type="text", text=found.text))
        return types.GetPromptResult(description=found.description, messages=[said])
