"""A server made with the official package. `python official_server.py stdio`, or `http PORT` on loopback."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("harbour", version="1.2.3", log_level="WARNING")
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


@server.tool()
def echo(text: str) -> str:
    """Says it back."""
    return text


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def picture() -> Image:
    """One red dot."""
    return Image(data=PNG, format="png")


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ToolError("the tide is out")


@server.tool()
async def slow(mark: str) -> str:
    """Takes an hour; writes what becomes of it into the file."""
    Path(mark).write_text("started")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        Path(mark).write_text("cancelled")
        raise
    return "done"


@server.tool()
def crash() -> str:
    """Ends the whole process."""
    os._exit(3)


@server.tool()
def environment() -> dict[str, str]:
    """All variables."""
    return dict(os.environ)


@server.tool()
async def grow(context: Context) -> str:
    """Brings a new tool."""
    server.add_tool(lambda: "hello", name="greet", description="Is new.")
    await context.session.send_tool_list_changed()
    return "grown"


def add_resources_and_prompts() -> None:
    @server.resource("harbour://tides", description="When the tide turns.", mime_type="text/plain")
    def tides() -> str:
        return "high water at noon"

    @server.resource("harbour://dot", mime_type="image/png")
    def dot() -> bytes:
        return PNG

    @server.resource("harbour://depth/{place}")
    def depth(place: str) -> str:
        return f"{place}: 6 m"

    @server.prompt()
    def greet_ship(ship: str, language: str = "English") -> str:
        """How to greet a ship."""
        return f"Greet the ship {ship} in {language}."


if __name__ == "__main__":
    if "rich" in sys.argv:
        add_resources_and_prompts()
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
