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
_PIECES = re.compile(
    r"(?P<word>[A-Za-z\u00c0-\u024f]+)|(?P<digits>[0-9]+)|(?P<space>[ \t]+)|(?P<lines>[\r\n]+)|(?P<mark>[\x21-\x7e])"
    r"|(?P<wide>[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+)|(?P<letters>[^\W\d_]+)|(?P<other>.)",
    re.DOTALL,
)


_WORDS, _DIGITS = re.compile("[A-Za-z]+"), re.compile("[0-9]+")
_INDENTS, _BREAKS = re.compile("[ \t]{2,}"), re.compile("[\r\n]+")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def estimate_tokens(text: str) -> int:
    """An honest guess, rather too high than too low."""
    return int((_in_ascii(text) if text.isascii() else _in_any_script(text)) + 0.999)


def _in_ascii(text: str) -> float:
    """The same as below, several times as quick: a megabyte is counted on the event loop, too."""
    words, digits = (Counter(map(len, runs.findall(text))) for runs in (_WORDS, _DIGITS))
    single = len(_INDENTS.findall(text)) + len(_BREAKS.findall(text))
    controls = len(_CONTROLS.findall(text))
    runs = sum(length * count for found in (words, digits) for length, count in found.items())
    marks = len(text) - runs - controls - sum(map(text.count, " \t\r\n"))
    total = single + controls + 0.75 * marks
    total += sum(count * (1 if length <= 6 else 1 + (length - 6) / 4) for length, count in words.items())
    return total + sum(count * ((length + 2) // 3) for length, count in digits.items())


def _in_any_script(text: str) -> float:
    total = 0.0
    for match in _PIECES.finditer(text):
        length = match.end() - match.start()
        match match.lastgroup:
            case "word":  # with the space before it
                total += 1 if length <= 6 else 1 + (length - 6) / 4
            case "digits":  # three a token
                total += (length + 2) // 3
            case "space":  # one space belongs to the next word, an indent is a token
                total += 0 if length == 1 else 1
            case "lines" | "other":  # emoji and rare signs take several, typographic marks one
                total += 1
            case "wide":  # Chinese, Japanese, Korean: the newest vocabularies need less
                total += 1.05 * length
            case "letters":  # Cyrillic, Greek, Arabic, Hindi and the like
                total += 0.45 * length
            case _:
                total += 0.75
    return total


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
