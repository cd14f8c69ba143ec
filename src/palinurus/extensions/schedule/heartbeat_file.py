"""HEARTBEAT.md: whether it says anything, the tasks in it, and the files that it names. Pure.

Tasks have an interval of their own:

    tasks:
      - name: inbox
        interval: 2h
        prompt: "Is there mail that cannot wait?"
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from palinurus.config.section import seconds

MOST_FILES = 20
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_SAYS_NOTHING = re.compile(r"(?:#.*|[-*+]\s*(?:\[[ xX]?\]\s*)?|-{3,}|`{3}\w*)?")
_PATH = re.compile(r"(?<![\w/:@.-])(?:[\w-][\w.-]*/)*[\w-][\w.-]*\.\w{1,8}\b(?![/@])")
_FIELD = re.compile(r"(name|interval|prompt):\s*(.*)")


class HeartbeatTask(Struct, frozen=True):
    name: str
    interval_ms: int
    prompt: str


class HeartbeatFile(Struct, frozen=True):
    text: str | None = None  # outside the tasks; None: there is no file
    tasks: tuple[HeartbeatTask, ...] = ()
    faults: tuple[str, ...] = ()  # what is wrong with its tasks
    is_empty: bool = False  # there are only blank lines, headings, comments and empty items in it

    @property
    def named_files(self) -> tuple[str, ...]:
        """What looks like a path inside the workspace, in the text and in the tasks."""
        texts = (self.text or "", *(task.prompt for task in self.tasks))
        found = (each.removeprefix("./") for text in texts for each in _PATH.findall(text))
        return tuple(dict.fromkeys(found))[:MOST_FILES]

    def due_tasks(self, last_runs: dict[str, int], now: int) -> tuple[HeartbeatTask, ...]:
        return tuple(task for task in self.tasks if now - last_runs.get(task.name, 0) >= task.interval_ms)


def parse_heartbeat(text: str) -> HeartbeatFile:
    rest: list[str] = []
    block: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.rstrip() == "tasks:":
            inside = True
        elif inside and (not line.strip() or line[0] in " \t-"):
            block.append(line.strip())
        else:
            inside = False
            rest.append(line)
    tasks, faults = _read_tasks(block)
    own = "\n".join(rest)
    is_blank = all(_SAYS_NOTHING.fullmatch(line.strip()) for line in _COMMENT.sub("", own).splitlines())
    return HeartbeatFile(own, tasks, faults, is_blank and not tasks)


def _read_tasks(lines: list[str]) -> tuple[tuple[HeartbeatTask, ...], tuple[str, ...]]:
    items: list[dict[str, str]] = []
    for line in filter(None, lines):
        if line.startswith("-"):
            items.append({})
        found = _FIELD.fullmatch(line.removeprefix("-").strip())
        if found and items:
            items[-1][found[1]] = _unquoted(found[2].strip())
    tasks: list[HeartbeatTask] = []
    faults: list[str] = []
    for item in items:
        task = _task(item)
        faults.append(task) if isinstance(task, str) else tasks.append(task)
    return tuple(tasks), tuple(faults)


def _task(item: dict[str, Any]) -> HeartbeatTask | str:
    """The task, or what is wrong with it."""
    name = item.get("name", "")
    if not name or not item.get("prompt"):
        return f"a task of HEARTBEAT.md has no {'prompt' if name else 'name'}: {name or item}"
    try:
        return HeartbeatTask(name, round(seconds(item.get("interval", "")) * 1000), item["prompt"])
    except ValueError as error:
        return f"the interval of the task {name} in HEARTBEAT.md {error}"


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
