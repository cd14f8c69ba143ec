"""How many tokens a text will cost, before a provider has counted it.

A regular expression that looks at the kind of characters: characters divided by four is off by half on JSON and
logs and by two thirds on Chinese. Measured against real vocabularies in docs/decisions/0004-token-estimate.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)

IMAGE_TOKENS = 1_200
MESSAGE_TOKENS = 4  # role and delimiters
_LATIN, _WIDE = r"A-Za-z\u00c0-\u024f", r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"

_WORDS, _DIGITS = re.compile("[A-Za-z]+"), re.compile("[0-9]+")
_INDENTS, _BREAKS = re.compile("[ \t]{2,}"), re.compile("[\r\n]+")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MARKS = re.compile(r"[!-/:-@\[-`{-~]")
_LATIN_WORDS, _WIDE_RUNS = re.compile(f"[{_LATIN}]+"), re.compile(f"[{_WIDE}]+")
_OTHER_LETTERS = re.compile(rf"[^\W\d_{_LATIN}{_WIDE}]+")


def estimate_tokens(text: str) -> int:
    """An honest guess, rather too high than too low."""
    return int((_in_ascii(text) if text.isascii() else _in_any_script(text)) + 0.999)


def _in_ascii(text: str) -> float:
    """The same as below, in half the time."""
    words, digits = (Counter(map(len, runs.findall(text))) for runs in (_WORDS, _DIGITS))
    controls = len(_CONTROLS.findall(text))
    marks = len(text) - _length(words) - _length(digits) - controls - _spaces(text)
    return _runs(text, words, digits) + controls + 0.75 * marks


def _in_any_script(text: str) -> float:
    """Counted by the kind, not piece by piece: a megabyte is counted on the event loop, too."""
    words, digits = (Counter(map(len, runs.findall(text))) for runs in (_LATIN_WORDS, _DIGITS))
    marks = len(_MARKS.findall(text))
    wide, letters = (sum(map(len, runs.findall(text))) for runs in (_WIDE_RUNS, _OTHER_LETTERS))
    # Emoji and rare signs take several, typographic marks one.
    others = len(text) - _length(words) - _length(digits) - marks - wide - letters - _spaces(text)
    # Wide is Chinese, Japanese, Korean: the newest vocabularies need less. Letters are Cyrillic, Arabic, Hindi, ...
    return _runs(text, words, digits) + others + 0.75 * marks + 1.05 * wide + 0.45 * letters


def _runs(text: str, words: Counter[int], digits: Counter[int]) -> float:
    """Words with the space before them, numbers three digits a token; an indent or a break of lines is one token."""
    total: float = len(_INDENTS.findall(text)) + len(_BREAKS.findall(text))
    total += sum(count * (1 if length <= 6 else 1 + (length - 6) / 4) for length, count in words.items())
    return total + sum(count * ((length + 2) // 3) for length, count in digits.items())


def _length(runs: Counter[int]) -> int:
    return sum(length * count for length, count in runs.items())


def _spaces(text: str) -> int:
    return sum(map(text.count, " \t\r\n"))


def message_tokens(message: Message) -> int:
    match message:
        case UserMessage():
            notes = sum(estimate_tokens(note.text) + MESSAGE_TOKENS for note in message.context)
            return MESSAGE_TOKENS + notes + _content(message.content)
        case AssistantMessage():
            return MESSAGE_TOKENS + sum(_block(block) for block in message.content)
        case ToolResult():
            return MESSAGE_TOKENS + _content(message.content)


def rough_tokens(message: Message) -> int:
    """The same by the length of the text alone, where that is all of it: many times as quick, and within a half."""
    content = message.content
    if not isinstance(content, str) and not all(isinstance(block, Text | Thinking) for block in content):
        return message_tokens(message)
    text = message.text
    if isinstance(message, UserMessage):
        text += "".join(note.text for note in message.context)
    return MESSAGE_TOKENS + (len(text) // 3 if text.isascii() else len(text)) + 1


def messages_tokens(messages: Iterable[Message]) -> int:
    return sum(map(message_tokens, messages))


def _content(content: str | tuple[Text | Image, ...]) -> int:
    if isinstance(content, str):
        return estimate_tokens(content)
    return sum(IMAGE_TOKENS if isinstance(block, Image) else estimate_tokens(block.text) for block in content)


def _block(block: Text | Thinking | ToolCall) -> int:
    match block:
        case Text():
            return estimate_tokens(block.text)
        case ToolCall():
            return MESSAGE_TOKENS + estimate_tokens(block.name) + estimate_tokens(str(block.arguments))
        case Thinking():  # read once by its writer; not sent again on most wires
            return 0
