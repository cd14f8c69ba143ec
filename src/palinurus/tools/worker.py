"""A process for work on possibly hostile input: regular expression search and HTML parsing.

Python's regular expressions can take forever on a short line and block the interpreter meanwhile: threads and deadlines
do not help, only a process that can be killed. A page may be hostile, and its parser is a C extension: a page that
crashes it, takes forever or uses all memory affects only this process. So `run_worker` starts this file without an
environment and kills it when its time is over; the process limits itself. It does not import Palinurus. Its arguments
are the task and the directory of turbohtml. Stdin is a line of JSON with the arguments of the task, followed by the
page; stdout is the answer as JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbohtml import Document

Hit = tuple[str, int, str]
"""A path, the number of a line, and an excerpt."""

EXCERPT = 300
_LEAD = 80
MEMORY = 1024 * 1024 * 1024
CPU_SECONDS = 10
MAX_TITLE = 300
MAIN_CHARACTERS = 200  # a smaller main part is ignored

UNSEEN = (
    "script, style, noscript, template, svg, math, iframe, object, canvas, dialog:not([open]), head, [hidden],"
    " [aria-hidden=true], [style*='display:none' i], [style*='display: none' i], [style*='visibility:hidden' i],"
    " [style*='visibility: hidden' i], img[src^='data:' i]"
)
_NEEDED = ("SYSTEMROOT", "LD_LIBRARY_PATH")  # some machines cannot start Python without these


async def run_worker(task: str, library: str, request: bytes, seconds: float) -> bytes:
    """Returns the answer of the process; empty if it failed. Raises TimeoutError."""
    import os

    # Not at the top: the process must not import Palinurus.
    from palinurus.domain.worker import WorkerFailed, run_program

    arguments = ("-I", "-S", "-X", "utf8", __file__, task, library)
    env = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    try:
        return await run_program(arguments, request, seconds=seconds, env=env)
    except WorkerFailed:
        return b""


def matching_lines(pattern: str, documents: Iterable[tuple[str, str]], most: int) -> list[Hit]:
    """Returns the first `most` matching lines in the given order, ignoring case. Raises re.error for an invalid
    pattern."""
    search = re.compile(pattern, re.IGNORECASE).search
    hits: list[Hit] = []
    for path, text in documents:
        for number, line in enumerate(text.split("\n"), start=1):
            if found := search(line):
                hits.append((path, number, excerpt(line, found.start())))
                if len(hits) >= most:
                    return hits
    return hits


def excerpt(line: str, at: int) -> str:
    """Returns the line, or the part of a long line around the match."""
    line = line.rstrip("\r")
    if len(line) <= EXCERPT:
        return line
    start = 0 if at < EXCERPT - _LEAD else at - _LEAD
    end = start + EXCERPT
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def markdown(page: bytes, *, url: str, charset: str, most: int) -> dict[str, Any]:
    """Returns what a person would see on the page, as markdown, with absolute links."""
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
        escaping=Markdown.Escaping(mode="none", asterisks=False, underscores=False),  # for reading, not for rendering
        tables=Markdown.Tables(cell_blocks="text"),
    )
    main = document.select("main, [role=main]")
    whole = len(main) != 1 or len(main[0].text.strip()) < MAIN_CHARACTERS
    text = (document if whole else main[0]).to_markdown(config)
    return {"title": name, "text": text[:most], "total": len(text)}


def _parsed(page: bytes, charset: str) -> Document:
    from turbohtml import parse

    try:
        return parse(page, encoding=charset or None, detect_encoding=not charset, positions=False)
    except LookupError:  # no such charset
        return parse(page, detect_encoding=True, positions=False)


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


def answer_request(task: str, library: str) -> None:
    wanted = json.loads(sys.stdin.buffer.readline())
    if task == "search":
        answer: Any = matching_lines(**wanted)
    else:
        sys.path.append(library)
        answer = markdown(sys.stdin.buffer.read(), **wanted)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    limit_self()
    answer_request(*sys.argv[1:])
