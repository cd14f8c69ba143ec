"""Search texts for a pattern without ever letting the pattern hold up the house.

A pattern that cannot backtrack runs in a thread at once, if no text is very long. Any other runs in a child process
that is killed when its time is over: see matcher.py for why.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from palinurus.domain.errors import BadRequest
from palinurus.tools.files import matcher
from palinurus.tools.files.matcher import Hit, matching_lines

MAX_PATTERN = 500
SECONDS = 5.0
_QUICK = (
    20_000_000  # characters of pattern times characters of text: at worst a tenth of a second without the event loop
)

Document = tuple[str, str]
"""A path and its text."""


async def search(pattern: str, documents: Sequence[Document], most: int, *, seconds: float = SECONDS) -> list[Hit]:
    """The first matching lines. Raises BadRequest for a pattern that is none, or that takes too long."""
    await asyncio.to_thread(_check, pattern)  # compiling large character classes takes a while
    longest = max((len(text) for _, text in documents), default=0)
    if _is_tame(pattern) and len(pattern) * longest <= _QUICK:
        return await asyncio.to_thread(matching_lines, pattern, documents, most)
    return await _in_a_process(pattern, documents, most, seconds)


def _check(pattern: str) -> None:
    if not pattern:
        raise BadRequest("the pattern is empty", hint="give a word or a regular expression")
    if len(pattern) > MAX_PATTERN:
        raise BadRequest(f"the pattern has {len(pattern):,} characters; {MAX_PATTERN} are allowed", hint="shorten it")
    try:
        re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRequest(
            f"not a regular expression: {error}", hint="escape special characters with a backslash"
        ) from error


def _is_tame(pattern: str) -> bool:
    """Whether matching it is linear: no group, no repetition, and few optional characters.

    Judged by the characters alone, escaped ones too: a tame pattern taken for a wild one costs a few milliseconds.
    """
    return not set(pattern) & set("(*+{") and pattern.count("?") <= 3


async def _in_a_process(pattern: str, documents: Sequence[Document], most: int, seconds: float) -> list[Hit]:
    request = await asyncio.to_thread(_encode, pattern, documents, most)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(Path(matcher.__file__)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await child.communicate(request)
    except TimeoutError as error:
        raise BadRequest(f"the pattern took longer than {seconds:g} seconds", hint="use a simpler one") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise BadRequest("the pattern could not be matched", hint="use a simpler one")
    return [(path, number, text) for path, number, text in json.loads(answer)]


def _encode(pattern: str, documents: Sequence[Document], most: int) -> bytes:
    return json.dumps([pattern, most, documents]).encode()
