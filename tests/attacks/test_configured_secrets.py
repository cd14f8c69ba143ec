"""Secrets that the config holds under any name are secrets too: nothing shows or stores them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_model import HostileHome

from support.wire import Says, WireServer

pytestmark = pytest.mark.slow

HEADER, VARIABLE, IN_ADDRESS, REFERRED = "hdr-98aa77Qheader66", "pg 77 words", "pw-Zk81LmQ0x7", "file-Qq71zzTT0a9"


async def test_secrets_of_headers_variables_and_addresses_are_neither_shown_nor_stored(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text(REFERRED)
    servers = {
        "far": {
            "url": f"https://me:{IN_ADDRESS}@tools.example/mcp", "enabled": False,
            "headers": {"X-K": HEADER, "Accept": "application/json", "X-Ref": {"source": "file", "id": str(kept)}},
        },
        "near": {"command": "none", "enabled": False, "env": {"PGPASS": VARIABLE, "UNIT": "metres and feet"}},
    }  # fmt: skip
    secrets = (HEADER, VARIABLE, IN_ADDRESS, REFERRED)
    async with WireServer(Says(f"I know {' and '.join(secrets)}, application/json, metres and feet.")) as server:
        home = HostileHome(tmp_path, server, mcp={"servers": servers})
        said = await home.pal("agent", "-m", "what do you know?", "--session-key", "trip")
        shown = [await home.pal("config", "get", "mcp"), await home.pal("sessions", "show", "trip"), said]
    told = "\n".join(each.stdout + each.stderr for each in shown)
    assert not [secret for secret in secrets if secret in told], told
    assert "application/json, metres and feet" in said.stdout, "what is no secret stays"
    assert "https://me:***@tools.example/mcp" in shown[0].stdout
    holding = [
        str(path)
        for path in home.root.rglob("*")
        if path.is_file() and path.name != "palinurus.json" and any(s.encode() in path.read_bytes() for s in secrets)
    ]
    assert holding == []
