"""Find the lines that match a pattern. Knows nothing of Palinurus, because it also runs as a process of its own.

Python's regular expressions can take forever over a short line, and hold the interpreter meanwhile: no thread and no
deadline helps, only a process that can be killed. As a program it reads a request from stdin and answers on stdout,
both JSON: [pattern, most, [[path, text], ...]] -> [[path, line, excerpt], ...].
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable

Hit = tuple[str, int, str]
EXCERPT = 300
_LEAD = 80


def matching_lines(pattern: str, documents: Iterable[tuple[str, str]], most: int) -> list[Hit]:
    """The first `most` matching lines in the order given, case ignored. Raises re.error for what is no pattern."""
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
    """The line, or of a long one the part around the match."""
    line = line.rstrip("\r")
    if len(line) <= EXCERPT:
        return line
    start = 0 if at < EXCERPT - _LEAD else at - _LEAD
    end = start + EXCERPT
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


if __name__ == "__main__":
    wanted, limit, texts = json.load(sys.stdin.buffer)
    json.dump(matching_lines(wanted, texts, limit), sys.stdout)
