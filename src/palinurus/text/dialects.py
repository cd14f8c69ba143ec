"""The dialects of the networks, by their public documentation; what is text stays text in each of them.

Telegram: HTML of the Bot API. Code is not part of other entities, quotations are not nested. Discord: markdown with
backslashes; `@everyone` and numbers of people get a character without width, as discord.py does. Slack and WhatsApp
have no escapes: a hair space makes a mark text, and a mark that touches letters gets a space without width.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape, unescape
from typing import ClassVar

import msgspec

from palinurus.text.lines import BOLD, CODE, ITALIC, STRIKE, Span, TextLine, plain_text, unlinked
from palinurus.text.writer import DialectWriter, FencedWriter, LineFrame

NO_WIDTH = "\u200b"
HAIR_SPACE = "\u200a"
GRAVE = "\u02cb"  # looks like a backtick
_TAG = re.compile("<[^>]*>")


class TelegramWriter(FencedWriter):
    marks: ClassVar = {BOLD: ("<b>", "</b>"), ITALIC: ("<i>", "</i>"), STRIKE: ("<s>", "</s>")}
    bullets: ClassVar = ("•", "◦")
    quote = ""
    nests_quotes = False

    def frames(self, line: TextLine) -> tuple[LineFrame, ...]:
        if fenced := super().frames(line):
            return fenced
        quotes = [container.id for container in line.path if container.kind == "quote"]
        return (LineFrame(("quote", quotes[0]), "<blockquote>", "</blockquote>"),) if quotes else ()

    def fence_of(self, line: TextLine) -> tuple[str, str]:
        if language := line.block.language:
            return f'<pre><code class="language-{language}">', "</code></pre>"
        return "<pre>", "</pre>"

    def visible(self, text: str) -> str:
        return unescape(_TAG.sub("", text)) if "<" in text or "&" in text else text

    def fenced(self, text: str) -> str:
        return escape(text)

    def literal(self, text: str) -> str:
        return escape(text, quote=False)

    def style_of(self, span: Span) -> int:
        return CODE if span.style & CODE and not span.link else span.style

    def code(self, text: str) -> str:
        return f"<code>{escape(text)}</code>"

    def link(self, span: Span) -> str:
        if span.is_address:
            return self.literal(span.text)  # the apps find it
        if span.link.startswith("tel:"):
            return self.literal(plain_text((span,)))
        return f'<a href="{escape(span.link)}">{escape(span.text)}</a>'


class DiscordWriter(FencedWriter):
    marks: ClassVar = {BOLD: ("**", "**"), ITALIC: ("_", "_"), STRIKE: ("~~", "~~")}
    nests_quotes = False
    quotes_code = True

    _SPECIAL = re.compile(
        r"[\\`<]|\*(?!\s)|(?<!\s)\*|~(?=~)|(?<=~)~|\|(?=\|)|(?<=\|)\||\](?=\()|(?<![^\W_])_|_(?![^\W_])"
    )
    _START = re.compile(r"\A(\s*)(#{1,3}|-#|[->+])(?=\s|[>#]|$)|\A(\s*\d{1,9})([.)])(?=\s|$)")
    _MENTION = re.compile(r"@(?=everyone|here|[!&]?\d{15})")
    _GRAVES = re.compile("`+")

    def fence_of(self, line: TextLine) -> tuple[str, str]:
        return f"```{line.block.language}\n", "\n```"

    def heading(self, line: TextLine) -> str:
        if line.block.level > 3 or line.path:
            return super().heading(line)
        return f"{'#' * line.block.level} {self.inline(line.spans)}"

    def inline(self, spans: Sequence[Span]) -> str:
        text = super().inline(spans)
        begins_marked = not spans or spans[0].link or spans[0].style
        return text if begins_marked else self._START.sub(self._escaped_start, text, count=1)

    @staticmethod
    def _escaped_start(found: re.Match[str]) -> str:
        space, sign, number, point = found.groups()
        return f"{space}\\{sign}" if sign else f"{number}\\{point}"

    def marks_of(self, style: int, spans: Sequence[Span], index: int) -> tuple[str, str]:
        if style != ITALIC:
            return self.marks[style]
        before = spans[index - 1].text[-1:] if index else ""
        following = next((span for span in spans[index:] if not span.style & ITALIC), None)
        after = following.text[:1] if following else ""
        return ("*", "*") if before.isalnum() or after.isalnum() else ("_", "_")

    def literal(self, text: str) -> str:
        return self._MENTION.sub(f"@{NO_WIDTH}", self._SPECIAL.sub(r"\\\g<0>", text))

    def _link_text(self, text: str) -> str:
        return "".join(
            f"\\{part}" if part in "[]" else self.literal(part) for part in re.split(r"([\[\]])", text) if part
        )

    def fenced(self, text: str) -> str:
        return self._MENTION.sub(f"@{NO_WIDTH}", super().fenced(text))

    def code(self, text: str) -> str:
        runs = {len(run) for run in self._GRAVES.findall(text)}
        mark = "`" if 1 not in runs else "``"
        shown = text if len(mark) not in runs else text.replace("`", GRAVE)
        shown = self._MENTION.sub(f"@{NO_WIDTH}", shown)
        pad = " " if shown.startswith("`") or shown.endswith("`") else ""
        return f"{mark}{pad}{shown}{pad}{mark}"

    def link(self, span: Span) -> str:
        address = self._MENTION.sub("%40", span.link).replace("(", "%28").replace(")", "%29").replace("<", "%3C")
        if span.is_address:
            return self._MENTION.sub("%40", span.text) if "://" in span.text else self.literal(span.text)
        if not span.link.lower().startswith("http") or "://" in span.text:
            shown, *rest = unlinked(span)
            return self.literal(shown.text) + "".join(f" ({part.text.strip(' ()')})" for part in rest)
        text = self.code(span.text) if span.style & CODE else self._link_text(span.text)
        return f"[{text}]({address})"


class _BoundaryWriter(FencedWriter):
    """Marks that count only at the edge of a word, and that cannot be escaped."""

    marks: ClassVar = {BOLD: ("*", "*"), ITALIC: ("_", "_"), STRIKE: ("~", "~")}
    nests_quotes = False
    joint = NO_WIDTH

    _OPENS = re.compile(r"(?<![^\W_])[*_~](?=\S)")
    _CLOSES = re.compile(r"(?<=\S)[*_~](?![^\W_])")
    _START = re.compile(r"(?=>)")

    def inline(self, spans: Sequence[Span]) -> str:
        line = "".join("\ufffc" if span.link or span.style & CODE else span.text for span in spans)
        if not any(mark in line for mark in "*_~>-"):
            return super().inline(spans)
        styled = {mark for span in spans for style, (mark, _) in self.marks.items() if span.style & style}
        last = {found.group(): found.start() for found in self._CLOSES.finditer(line)}
        shown, at = [], 0
        for span in spans:
            if span.link or span.style & CODE:
                shown.append(span)
                at += 1
                continue
            start, at = at, at + len(span.text)
            shown.append(msgspec.structs.replace(span, text=self._harmless(line, start, at, styled, last)))
        return super().inline(shown)

    def _harmless(self, line: str, start: int, end: int, styled: set[str], last: dict[str, int]) -> str:
        """The text from start to end, in which no mark makes a style."""
        text = line[start:end]
        opens = {found.start() for found in self._OPENS.finditer(line, start, end)}
        closes = {found.start() for found in self._CLOSES.finditer(line, start, end)}
        out = [NO_WIDTH] if not start and self._START.match(text) else []
        for place, character in enumerate(text, start):
            out += [HAIR_SPACE] if place in closes and character in styled else []
            out.append(character)
            pairs = character in styled or last.get(character, -1) > place
            out += [HAIR_SPACE] if place in opens and pairs else []
        return "".join(out)


class SlackWriter(_BoundaryWriter):
    bullets: ClassVar = ("•", "◦")

    def literal(self, text: str) -> str:
        return escape(text.replace("`", GRAVE), quote=False)

    def fenced(self, text: str) -> str:
        return escape(super().fenced(text), quote=False)

    def code(self, text: str) -> str:
        return f"`{self.literal(text)}`" if text.strip() else text

    def link(self, span: Span) -> str:
        address = escape(span.link, quote=False).replace("|", "%7C").replace("&lt;", "%3C").replace("&gt;", "%3E")
        return f"<{address}>" if span.text == span.link else f"<{address}|{self.literal(span.text)}>"


class WhatsAppWriter(_BoundaryWriter):
    _START = re.compile(r"(?=>|[-*] )")

    def literal(self, text: str) -> str:
        return text.replace("`", GRAVE)

    def code(self, text: str) -> str:
        return f"```{self.fenced(text)}```" if text.strip("` ") else self.literal(text)

    def link(self, span: Span) -> str:
        return plain_text((span,))


class HtmlWriter(DialectWriter):
    """HTML for e-mail, without styles."""

    marks: ClassVar = {BOLD: ("<b>", "</b>"), ITALIC: ("<i>", "</i>"), STRIKE: ("<s>", "</s>")}
    _TABLE = '<table border="1" cellpadding="4" cellspacing="0">\n'

    def skips(self, line: TextLine) -> bool:
        return line.block.kind == "table" and not line.cells

    def frames(self, line: TextLine) -> tuple[LineFrame, ...]:
        frames = []
        for each in line.path:
            if each.kind == "quote":
                frames.append(LineFrame(("quote", each.id), "<blockquote>\n", "\n</blockquote>"))
                continue
            tag, start = (
                ("ol", f' start="{each.number}"' if each.number != 1 else "") if each.number >= 0 else ("ul", "")
            )
            frames.append(LineFrame(("list", each.list_id), f"<{tag}{start}>\n", f"\n</{tag}>"))
            frames.append(LineFrame(("item", each.id), "<li>", "</li>"))
        return (*frames, *self._block_frame(line))

    def _block_frame(self, line: TextLine) -> tuple[LineFrame, ...]:
        block = line.block
        match block.kind:
            case "heading":
                tags = f"<h{block.level}>", f"</h{block.level}>"
            case "code":
                tags = "<pre><code>", "</code></pre>"
            case "table":
                tags = self._TABLE, "\n</table>"
            case "paragraph" if not block.is_tight:
                tags = "<p>", "</p>"
            case _:
                return ()
        return (LineFrame(("block", block.id), *tags),)

    def separator(self, before: TextLine, line: TextLine) -> str:
        return "<br>\n" if before.block == line.block and line.block.kind in ("paragraph", "heading") else "\n"

    def body(self, line: TextLine) -> str:
        match line.block.kind:
            case "rule":
                return "<hr>"
            case "code":
                return escape(line.text)
            case "table":
                return self._row(line)
        return self.inline(line.spans)

    def _row(self, line: TextLine) -> str:
        tag = "th" if line.is_head else "td"
        cells = []
        for cell, align in zip(line.cells, line.block.aligns, strict=False):
            aligned = f' align="{align}"' if align else ""
            cells.append(f"<{tag}{aligned}>{self.inline(cell)}</{tag}>")
        return f"<tr>{''.join(cells)}</tr>"

    def literal(self, text: str) -> str:
        return escape(text)

    def code(self, text: str) -> str:
        return f"<code>{escape(text)}</code>"

    def link(self, span: Span) -> str:
        if span.link.startswith("tel:"):
            return self.literal(plain_text((span,)))
        text = self.code(span.text) if span.style & CODE else self.literal(span.text)
        return f'<a href="{escape(span.link)}">{text}</a>'


WRITERS = {
    "plain": DialectWriter(),
    "telegram": TelegramWriter(),
    "discord": DiscordWriter(),
    "slack": SlackWriter(),
    "whatsapp": WhatsAppWriter(),
    "html": HtmlWriter(),
}
