"""Make markdown of a web page. Knows nothing of Palinurus, because it runs as a process of its own.

A page is hostile until shown otherwise, and the parser is a C extension: a page that crashes it, that takes forever
or all memory costs this process. It is started without an environment and puts limits on itself.

As a program its argument is the directory that turbohtml lies in. On stdin comes a line of JSON, {"url", "charset",
"most"}, and then the page; the answer on stdout is JSON: {"title", "text", "total"}, the text at most `most`
characters of `total`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbohtml import Document, Element

MEMORY = 1024 * 1024 * 1024
CPU_SECONDS = 10
MAX_TITLE = 300
MAIN_CHARACTERS = 200  # a main part with less is no main part

UNSEEN = (
    "script, style, noscript, template, svg, math, iframe, object, canvas, dialog:not([open]), head, [hidden],"
    " [aria-hidden=true], [style*='display:none' i], [style*='display: none' i], [style*='visibility:hidden' i],"
    " [style*='visibility: hidden' i], img[src^='data:' i]"
)


def markdown(page: bytes, *, url: str, charset: str, most: int) -> dict[str, Any]:
    """What a person would see on the page, as markdown, with all links made absolute."""
    from turbohtml import Markdown

    document = _parsed(page, charset)
    title = document.find("title")
    name = " ".join(title.text.split())[:MAX_TITLE] if title is not None else ""
    document.resolve_links(document.base_url(url))
    for each in document.select(UNSEEN):
        each.decompose()
    for each in document.select("a[href^='javascript:' i], a[href^='data:' i]"):
        each.unwrap()
    config = Markdown(
        escaping=Markdown.Escaping(mode="none", asterisks=False, underscores=False),  # to be read, not rendered
        tables=Markdown.Tables(cell_blocks="text"),
    )
    text = _main_part(document).to_markdown(config)
    return {"title": name, "text": text[:most], "total": len(text)}


def _parsed(page: bytes, charset: str) -> Document:
    from turbohtml import parse

    try:
        return parse(page, encoding=charset or None, detect_encoding=not charset, positions=False)
    except LookupError:  # no such charset
        return parse(page, detect_encoding=True, positions=False)


def _main_part(document: Document) -> Document | Element:
    found = document.select("main, [role=main]")
    return found[0] if len(found) == 1 and len(found[0].text.strip()) >= MAIN_CHARACTERS else document


def limit_self() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = {"AS": MEMORY, "CPU": CPU_SECONDS, "FSIZE": 0, "CORE": 0}
    for name, most in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    limit_self()
    sys.path.append(sys.argv[1])
    wanted = json.loads(sys.stdin.buffer.readline())
    json.dump(markdown(sys.stdin.buffer.read(), **wanted), sys.stdout)
