"""An MCP server of the standard library: one tool that reads mail, one that sends it.

`python mailbox_server.py MAIL LOG`. What is sent is a line in LOG: that is how a test sees it from outside.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MAIL, LOG = map(Path, sys.argv[1:3])
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {
        "name": "read_mail",
        "description": "The newest mail.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "send_mail", "description": "Sends a mail.", "inputSchema": TEXT, "annotations": {"readOnlyHint": False}},
]


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "send_mail":
        with LOG.open("a") as out:
            out.write(str(arguments.get("text", "")) + "\n")
        return {"content": [{"type": "text", "text": "sent"}]}
    return {"content": [{"type": "text", "text": MAIL.read_text()}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            about = {"name": "mailbox", "version": "0"}
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return called(params["name"], params.get("arguments", {}))
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
        sys.stdout.flush()
