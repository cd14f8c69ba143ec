"""A server of the standard library alone: it starts at once, and does what no decent server would.

`python plain_server.py BEHAVIOUR…`: a behaviour is a word or `word=value`. Every start adds a line to `starts=FILE`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SAID = dict(word.partition("=")[::2] for word in sys.argv[1:])
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [{"name": "echo", "description": "Says it back.", "inputSchema": OBJECT}]
NOTHING = object()


class Refusal(Exception):
    pass


def note(line: str) -> None:
    if "starts" in SAID:
        with Path(SAID["starts"]).open("a") as out:
            out.write(line + "\n")


def tools() -> Any:
    if "many" in SAID:
        return [{"name": f"tool {index}", "inputSchema": OBJECT} for index in range(int(SAID["many"]))]
    return json.loads(Path(SAID["tools"]).read_text()) if "tools" in SAID else TOOLS


def called(name: str, arguments: dict[str, Any]) -> Any:
    match name:
        case "exit":
            os._exit(7)
        case "hang":
            return NOTHING
        case "raw":
            return arguments["result"]
        case "refuse":
            raise Refusal("no such thing")
        case "flood":
            return {"content": [{"type": "text", "text": "x" * int(arguments["size"])}]}
    return {"content": [{"type": "text", "text": str(arguments.get("text", arguments))}]}


def answer(method: str, params: dict[str, Any]) -> Any:
    match method:
        case "initialize" if "modern" not in SAID:
            about = {"name": "plain", "version": "0"}
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "server/discover" if "modern" in SAID:
            return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return called(params["name"], params.get("arguments", {}))
    raise Refusal("unknown")


def hear(message: dict[str, Any]) -> None:
    if message["method"] == "notifications/cancelled":
        note(f"cancelled {message['params']['requestId']}")
    if "id" not in message:
        return
    said: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        result = answer(message["method"], message.get("params", {}))
        if result is NOTHING:
            return
        said["result"] = result
        if "modern" in SAID:
            result |= {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    except Refusal as refusal:
        said["error"] = {"code": -32601, "message": str(refusal)}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def begin() -> None:
    note(str(os.getpid()))
    if "greets" in SAID:
        print("Welcome to the server!")
        print("something is odd", file=sys.stderr)
    if "stubborn" in SAID:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "children" in SAID:
        note(str(subprocess.Popen(["sleep", "3600"], start_new_session=True).pid))
    if "mute" in SAID:
        time.sleep(3600)


begin()
for line in sys.stdin:
    hear(json.loads(line))
if "stubborn" in SAID:
    time.sleep(3600)
