"""`pal mcp` on a real home."""

from __future__ import annotations

from called import Pal


def test_without_servers_the_list_says_how_to_name_one(pal_command: Pal) -> None:
    shown = pal_command("mcp", "list")
    assert (shown.code, shown.err) == (0, "")
    assert "pal config set mcp.servers.files.command" in shown.out
    assert pal_command("mcp", "list", "--json").json == {"servers": [], "warnings": []}


def test_a_server_that_is_not_configured_is_one_clear_line(pal_command: Pal) -> None:
    ended = pal_command("mcp", "test", "files")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "pal: there is no MCP server 'files' (configured under mcp.servers: none)\n"
