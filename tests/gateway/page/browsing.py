"""A browser as the gateway sees it: requests with its headers, its cookie, and the key that its page keeps."""

from __future__ import annotations

import json
from typing import Any

from serving import Answer, Running, Visitor, request

JSON = {"Content_Type": "application/json"}


class Browser:
    def __init__(self, here: Running) -> None:
        self.here = here
        self.origin = f"http://127.0.0.1:{here.port}"
        self.cookie = ""
        self.key = ""

    def code(self) -> str:
        return self.here.gateway.link().url.partition("#code=")[2]

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        said = {"Origin": self.origin, "Cookie": self.cookie or "-"} | JSON | headers
        return await request(self.here.port, path, method="POST", body=json.dumps(body or {}).encode(), **said)

    async def login(self, code: str = "", **headers: str) -> Answer:
        told = await self.post("/page/login", {"code": code or self.code()}, **headers)
        if told.status == 200:
            self.cookie = told.headers["set-cookie"].partition(";")[0]
            self.key = told.json["key"]
        return told

    async def open(self, origin: str = "", key: str | None = None, **auth: str) -> Visitor:
        """A WebSocket as the page opens it; whether it was let in is in `hello`."""
        headers = {"Cookie": self.cookie} if self.cookie else {}
        visitor = await Visitor.arrive(
            f"ws://127.0.0.1:{self.here.port}/ws", origin=origin or self.origin, additional_headers=headers
        )
        await visitor.connect(auth={"bootstrapToken": self.key if key is None else key, **auth})
        return visitor
