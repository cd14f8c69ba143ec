"""The rules of Telegram's Bot API for HTML, as a strict parser: what it refuses, the network refuses or misreads."""

from __future__ import annotations

import re
from html import unescape

_TOKEN = re.compile(r"<(/?)([a-z]+)((?: [a-z]+=\"[^\"<>]*\")*)>|(&(?:lt|gt|amp|quot|#x27);)|([^<>&]+)")
_ATTRIBUTES = {"a": r' href="(https?://|mailto:)[^"]+"', "code": r'( class="language-[\w+#.-]+")?'}
_STYLES = ("b", "i", "s")


def telegram_text(html: str) -> str:
    """The text that people see. Fails if the rules are broken."""
    at, shown = 0, []
    opened: list[str] = []
    while at < len(html):
        token = _TOKEN.match(html, at)
        assert token, f"no markup of the Bot API: {html[at : at + 60]!r}"
        closing, tag, attributes, entity, text = token.groups()
        at = token.end()
        if not tag:
            shown.append(unescape(entity or text))
        elif closing:
            assert opened, f"</{tag}> closes nothing"
            assert opened.pop() == tag
        else:
            _check_place(tag, attributes, opened)
            opened.append(tag)
    assert not opened
    return "".join(shown)


def _check_place(tag: str, attributes: str, opened: list[str]) -> None:
    assert tag in (*_STYLES, "a", "code", "pre", "blockquote")
    assert re.fullmatch(_ATTRIBUTES.get(tag, ""), attributes)
    assert tag not in opened
    assert "code" not in opened, "code contains nothing"
    assert opened in ([], ["pre"]) or tag != "code" or opened == ["blockquote"], "code is part of nothing"
    assert "pre" not in opened or (tag == "code" and attributes)
    assert not attributes.startswith(" class") or opened == ["pre"]
    if tag in ("a", "pre", "blockquote"):
        allowed = {"a": (*_STYLES, "blockquote"), "pre": (), "blockquote": ()}[tag]
        assert all(each in allowed for each in opened)
