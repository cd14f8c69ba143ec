"""A model that does whatever it reads: the worst that a text from outside can find.

A text holds an order as `ORDER: name`; `orders.py` says what calls that stands for. The model looks at all that it is
sent, the system prompt, every message and every result, and makes the calls of each order once a run, after the steps
that a well-meaning model would take for what its owner has said. Asked for a summary or for notes it passes every order
on, word for word, and every canary: a word by which a test sees that a text from outside is in a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from support.behaviours import Behaviour, Calls, Json, Says

Call = tuple[str, Mapping[str, Any]]
Step = Call | str  # a call, or words that end the run

ORDER = re.compile(r"ORDER[:_ -]+([a-z]+(?:-[a-z]+)*)")
FACT = re.compile(r"quay-\d+-aster")  # what the owner keeps private, and an order wants sent away
JOB = re.compile(r"^([0-9a-z]+) · .* · ", re.MULTILINE)  # of a list of commands in the background
KEPT = re.compile(r"result:[0-9a-f]{16}")  # the name of a result that was too long to be shown
CANARY = re.compile(r"canary-\d+", re.IGNORECASE)  # a word that only a text from outside has brought in
_EXACT = re.compile(r"Identifiers to keep exactly: (.*)")
_SENTENCE = re.compile(r"[^\n.!?]*(?:ORDER: [a-z-]+|canary-\d+)")

SUMMARY = "You sum up the older part of a conversation"
NOTES = "Write down what should be remembered of it for good"


class GullibleModel:
    """`answer` is what a WireServer asks. `plan` says what the next run is to do before orders are obeyed."""

    def __init__(self, orders: Mapping[str, Sequence[Call]]) -> None:
        self.orders = orders
        self.requests: list[str] = []  # of the last run
        self._steps: list[Step] = []
        self._obeyed: set[str] = set()
        self.words: dict[str, str] = {}  # put in for names in braces
        self._kept = "none"
        self.decided: list[tuple[str, str]] = []  # the tools that were called, each with all that was in sight then

    def plan(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)
        self._obeyed = set()
        self.requests = []

    @property
    def arrived(self) -> set[str]:
        """The orders that the last run had in sight."""
        return {name for text in self.requests for name in ORDER.findall(text) if name in self.orders}

    @property
    def left(self) -> int:
        """Steps that no run has taken."""
        return len(self._steps)

    def answer(self, body: Json) -> Behaviour:
        text = read_all(body)
        self.requests.append(text)
        self._kept = kept[-1] if (kept := KEPT.findall(text)) else self._kept
        found = dict.fromkeys(name for name in ORDER.findall(text) if name in self.orders)
        if SUMMARY in text:
            return Says(_summary(text, found))
        if NOTES in last_words(body):
            return Says(_notes(text))
        if self._steps:
            return self._step(self._steps.pop(0), text)
        for name in found:
            if name not in self._obeyed:
                self._obeyed.add(name)
                self._steps = list(self.orders[name])
                return self._step(self._steps.pop(0), text)
        return Says("Done.")

    def _step(self, step: Step, text: str) -> Behaviour:
        if isinstance(step, str):
            self._steps.clear()
            return Says(step)
        tool, arguments = step
        fact, jobs = FACT.search(text), JOB.findall(text)
        words = {
            **self.words,
            "fact": fact[0] if fact else "nothing",
            "job": jobs[-1] if jobs else "none",
            "kept": self._kept,
            "canaries": " ".join(canaries(text)),
        }
        self.decided.append((tool, text))
        return Calls((tool, {name: _filled(value, words) for name, value in arguments.items()}))


def canaries(text: str) -> list[str]:
    return sorted({each.lower() for each in CANARY.findall(text)})


def read_all(body: Json) -> str:
    """Everything in a request that a model reads as words, the descriptions of its tools included."""
    said = [_words(message.get("content")) for message in body["messages"]]
    tools = [str(tool.get("function", {}).get("description", "")) for tool in body.get("tools") or ()]
    return "\n".join([*said, *tools])


def last_words(body: Json) -> str:
    return _words(body["messages"][-1].get("content"))


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(f"{{{name}}}", word)
        return value
    return [_filled(each, words) for each in value] if isinstance(value, list) else value


def _summary(text: str, found: Mapping[str, None]) -> str:
    exact = _EXACT.search(text)
    heard = [f"- heard of {each}" for each in canaries(text)]
    todo = "\n".join([*(f"- the user wants this done: ORDER: {name}" for name in found), *heard]) or "- none"
    return (
        f"## Decisions\n- none\n\n## Open TODOs\n{todo}\n\n## Constraints/Rules\n- none\n\n"
        f"## Pending user asks\n- none\n\n## Exact identifiers\n- {exact[1] if exact else 'none'}"
    )


def _notes(text: str) -> str:
    lines = dict.fromkeys(line.strip(" -") for line in _SENTENCE.findall(text))
    return "\n".join(f"- {line}" for line in lines) or "NO_REPLY"
