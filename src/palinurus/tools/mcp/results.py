"""What a server answers to a call, as a tool's result: text between markers, small pictures, a word on the rest."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import Image, Origin, Text
from palinurus.domain.tool import ToolOutput
from palinurus.tools.web.outside import harmless, wrapped
from palinurus.workspace.pictures import fit_image

MAX_TEXT = 1024 * 1024  # characters; what of them a model is shown is decided by the registry
MAX_PICTURES = 8
MAX_PICTURE = 5 * 1024 * 1024  # characters of base64


async def read_result(server: str, sent: Any) -> ToolOutput:
    """Never raises for JSON: what is of no known form is told."""
    if not isinstance(sent, Mapping):
        return outside(server, f"{server} answered what is no result", is_error=True)
    blocks = sent.get("content")
    texts: list[str] = []
    pictures: list[Image] = []
    for block in blocks if isinstance(blocks, list) else []:
        shown = await _shown(block, room=MAX_PICTURES - len(pictures))
        if isinstance(shown, Image):
            pictures.append(shown)
        else:
            texts.append(shown)
    structured = sent.get("structuredContent")
    if structured is not None and not _is_said(structured, texts):
        texts.append(_json(structured))
    text = "\n".join(texts)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[… {len(text) - MAX_TEXT:,} characters more were thrown away]"
    words = wrapped(server, text or "[no text]")
    failed = sent.get("isError") is True
    content: str | tuple[Text | Image, ...] = (Text(words), *pictures) if pictures else words
    return ToolOutput(content, is_error=failed, origin=Origin.OUTSIDE, sources=(f"mcp:{server}",))


def outside(server: str, text: str, *, is_error: bool = False) -> ToolOutput:
    return ToolOutput(harmless(text), is_error=is_error, origin=Origin.OUTSIDE, sources=(f"mcp:{server}",))


async def _shown(block: Any, *, room: int) -> str | Image:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image", "data": str(data)}:
            return await _picture(data, room)
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[a resource: {uri}]"
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"[{uri}]\n{text}"
        case {"type": str(kind)}:
            return f"[{kind[:40]}: cannot be shown]"
    return "[a part of no known form]"


async def _picture(data: str, room: int) -> str | Image:
    if len(data) > MAX_PICTURE or room <= 0:
        return f"[a picture of about {len(data) * 3 // 4:,} bytes: too much to be shown]"
    try:
        return await asyncio.to_thread(fit_image, base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return "[a picture that is damaged]"
    except BadRequest as error:
        return f"[a picture that cannot be shown: {error}]"


def _is_said(structured: Any, texts: list[str]) -> bool:
    """Whether the text says the same already: servers send both, for clients that know only text."""
    alone = structured["result"] if isinstance(structured, Mapping) and set(structured) == {"result"} else structured
    parsed = [_parsed(text) for text in texts]
    return any(same in (*parsed, *texts, parsed) for same in (structured, alone))


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return text


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, UnicodeError, RecursionError, msgspec.MsgspecError):
        return "[structured content that is no JSON]"
