"""Markdown for chat networks: its messages are within limits, lose nothing, and text stays text in each dialect."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from html.parser import HTMLParser
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from telegram_html import telegram_text

from palinurus.text.markdown import BreakMode, Dialect, RenderedPart, TextLimits, render_parts

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # discord.py imports audioop
    from discord.utils import escape_mentions

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
ROOM = TextLimits(100_000)
COUNTS = {
    "characters": len,
    "utf16": lambda text: len(text.encode("utf-16-le")) // 2,
    "bytes": lambda text: len(text.encode()),
}
KINDS = """\
# Heading
- item
  - nested
1. one
> quote
> > deep
```py
```
~~~
| a | b |
|---|--:|
| 1 | **2** | 3 |
---

**bold *both* bold**
`` a`b ``
[link](https://example.com/a)
https://example.com/b_c_d.
![i](https://example.com/i.png)
~~gone~~
    code
a <b> & c; @everyone <@12345678901234567>
שלום **עולם**
*a*b_c_ ~d~ `e` | f"""
LONG = ("word " * 30, "x" * 150, "Ends. Begins? " * 8, "👨‍👩‍👧‍👦" * 20, "中文**重要。**文字" * 9)
LINES = st.sampled_from([*KINDS.split("\n"), "", *LONG])
NOISE = st.text(alphabet="ab *_~`[]()<>&|\\#-1.!\n@:/'\"👩\u200dé中。", max_size=60)
PAGES = st.lists(LINES | NOISE, max_size=25).map("\n".join)
LIMITS = st.builds(
    TextLimits, st.integers(120, 600), st.sampled_from(["characters", "utf16", "bytes"]), st.sampled_from([0, 0, 5, 17])
)


def only(markdown: str, dialect: Dialect) -> str:
    """The text of the one message."""
    (part,) = render_parts(markdown, dialect, ROOM)
    return part.text


def words(text: str) -> str:
    """Letters and digits alone."""
    return re.sub(r"[\W_]+", "", text)


def seen(text: str, dialect: Dialect) -> str:
    """What the network counts."""
    return telegram_text(text) if dialect == "telegram" else text


class HtmlCheck(HTMLParser):
    """Well nested, and only tags that a mail program shows."""

    TAGS = frozenset("p b i s code pre a blockquote ul ol li table tr th td h1 h2 h3 h4 h5 h6".split())  # noqa: SIM905

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("br", "hr"):
            return
        assert tag in self.TAGS
        for name, value in attrs:
            assert name in ("href", "align", "start", "border", "cellpadding", "cellspacing")
            assert name != "href" or re.match("https?://|mailto:", value or "")
        self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def html_text(html: str) -> str:
    check = HtmlCheck()
    check.feed(html)
    check.close()
    assert not check.opened
    return check.text


@pytest.mark.parametrize("dialect", DIALECTS)
@given(markdown=PAGES, limits=LIMITS, mode=st.sampled_from(get_args(BreakMode)))
def test_every_message_is_within_limits_and_nothing_is_lost(
    dialect: Dialect, markdown: str, limits: TextLimits, mode: BreakMode
) -> None:
    parts = render_parts(markdown, dialect, limits, mode)
    for part in parts:
        assert COUNTS[limits.unit](seen(part.text, dialect)) <= limits.size
        assert COUNTS[limits.unit](part.plain) <= limits.size
        assert part.plain.strip()
    whole = "".join(words(part.plain) for part in render_parts(markdown, dialect, ROOM))
    assert "".join(words(part.plain) for part in parts) == whole
    assert parts == render_parts(markdown, dialect, limits, mode)


@pytest.mark.parametrize("dialect", ["telegram", "discord", "slack", "html"])
@given(markdown=PAGES, limits=LIMITS)
def test_every_message_stands_for_itself(dialect: Dialect, markdown: str, limits: TextLimits) -> None:
    for part in render_parts(markdown, dialect, limits):
        if dialect == "telegram":
            assert words(telegram_text(part.text)) in words(part.plain) or "(" in part.plain
        elif dialect == "html":
            html_text(part.text)
        else:
            fences = re.findall(r"^(?:> )?```", part.text, re.MULTILINE)
            assert len(fences) % 2 == 0


@given(st.text(max_size=200))
def test_the_words_of_any_text_are_in_its_messages(text: str) -> None:
    """What is no word may be markup; of words, all are kept in order."""
    source = re.sub(r"[^a-z ]", "", text.lower())
    markdown = " ".join(f"x{word}" for word in source.split())
    assert "".join(words(part.plain) for part in render_parts(markdown, "plain", TextLimits(50))) == words(markdown)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_text_of_white_space_has_no_messages(dialect: Dialect) -> None:
    assert render_parts(" \n\t\n", dialect, ROOM) == []
    assert render_parts("", dialect, ROOM, opened="```") == []


def test_a_cut_is_made_at_a_paragraph_then_a_line_a_sentence_a_space() -> None:
    def plain(markdown: str, size: int) -> list[str]:
        return [part.plain for part in render_parts(markdown, "plain", TextLimits(size))]

    assert plain("One one.\n\nTwo\nthree", 16) == ["One one.", "Two\nthree"]
    assert plain("One two\nthree\nfour", 14) == ["One two\nthree", "four"]
    assert plain("One two three. Four five", 20) == ["One two three.", "Four five"]
    assert plain("One two three", 10) == ["One two", "three"]
    assert plain("a" * 12, 10) == ["a" * 10, "aa"]
    assert plain("👨‍👩‍👧‍👦" * 3, 16) == ["👨‍👩‍👧‍👦" * 2, "👨‍👩‍👧‍👦"]


def test_units_of_utf16_and_bytes_are_counted_where_the_network_counts_them() -> None:
    text = "😀" * 60
    assert [len(part.plain) for part in render_parts(text, "plain", TextLimits(40))] == [40, 20]
    assert [len(part.plain) for part in render_parts(text, "plain", TextLimits(40, "utf16"))] == [20, 20, 20]
    assert [len(part.plain) for part in render_parts(text, "plain", TextLimits(40, "bytes"))] == [10] * 6


def test_telegram_counts_no_tags() -> None:
    bold = " ".join(["**&** x"] * 25)
    (part,) = render_parts(bold, "telegram", TextLimits(100))
    assert len(part.text) > 300
    assert len(telegram_text(part.text)) == 99


def test_messages_are_filled() -> None:
    parts = render_parts("word " * 5000, "telegram", TextLimits(4096))
    assert len(parts) == 7  # of 25,000 characters


def test_code_that_is_cut_is_closed_and_opened_again_with_its_language() -> None:
    code = "```python\n" + "x = 1\n" * 60 + "```"
    telegram = [part.text for part in render_parts(code, "telegram", TextLimits(200))]
    assert len(telegram) == 2
    assert all(text.startswith('<pre><code class="language-python">x = 1\n') for text in telegram)
    assert all(text.endswith("x = 1</code></pre>") for text in telegram)
    discord = [part.text for part in render_parts(code, "discord", TextLimits(200))]
    assert all(text.startswith("```python\nx = 1\n") and text.endswith("x = 1\n```") for text in discord)


def test_a_list_a_quotation_and_a_table_go_on_in_the_next_message() -> None:
    items = "\n".join(f"{number}. item of the list" for number in range(7, 17))
    assert render_parts(items, "html", TextLimits(200))[1].text.startswith('<ol start="')
    quoted = [part.text for part in render_parts("> words of somebody\n" * 20, "telegram", TextLimits(200))]
    assert len(quoted) > 1
    assert all(re.fullmatch("<blockquote>[^<]+</blockquote>", text) for text in quoted)
    table = "| a | b |\n|---|---|\n" + "| one | two |\n" * 40
    for text in (part.text for part in render_parts(table, "html", TextLimits(400))):
        assert re.fullmatch(r"<table [^<]*>(\n<tr>.*</tr>)+\n</table>", text)
    long = "- " + "word " * 60 + "\n- end"
    assert render_parts(long, "telegram", TextLimits(200))[1].text.startswith("  word")


def test_a_soft_limit_of_lines_is_kept_but_for_code() -> None:
    lines = [part.text for part in render_parts("a\n" * 40, "discord", TextLimits(2000, lines=17))]
    assert [text.count("\n") + 1 for text in lines] == [17, 17, 6]
    code = render_parts("```\n" + "a\n" * 40 + "```", "discord", TextLimits(2000, lines=17))
    assert len(code) == 1


def test_a_new_message_begins_at_each_blank_line_when_that_is_wanted() -> None:
    page = "One\ntwo.\n\n```\na\n\nb\n```\n\n- x\n\n- y\n\nEnd."
    texts = [part.plain for part in render_parts(page, "plain", ROOM, "newline")]
    assert texts == ["One\ntwo.", "a\n\nb", "- x\n\n- y", "End."]


@pytest.mark.parametrize(
    ("markdown", "telegram", "discord", "slack", "whatsapp"),
    [
        (
            "**b** *i* ~~s~~ `c`",
            "<b>b</b> <i>i</i> <s>s</s> <code>c</code>",
            "**b** _i_ ~~s~~ `c`",
            "*b* _i_ ~s~ `c`",
            "*b* _i_ ~s~ ```c```",
        ),
        ("***x***", "<b><i>x</i></b>", "**_x_**", "*_x_*", "*_x_*"),
        ("a**b**c", "a<b>b</b>c", "a**b**c", "a\u200b*b*\u200bc", "a\u200b*b*\u200bc"),
        ("a*b*c", "a<i>b</i>c", "a*b*c", "a\u200b_b_\u200bc", "a\u200b_b_\u200bc"),
        ("**标签：**正文", "<b>标签：</b>正文", "**标签：**正文", "*标签：*\u200b正文", "*标签：*\u200b正文"),
        ("**`c` b**", "<code>c</code><b> b</b>", "**`c` b**", "*`c` b*", "*```c``` b*"),
        ("# T", "<b>T</b>", "# T", "*T*", "*T*"),
        ("##### T", "<b>T</b>", "**T**", "*T*", "*T*"),
        (
            "[t](https://e.org/?a&b)",
            '<a href="https://e.org/?a&amp;b">t</a>',
            "[t](https://e.org/?a&b)",
            "<https://e.org/?a&amp;b|t>",
            "t (https://e.org/?a&b)",
        ),
        (
            "https://e.org/a_b_",
            "https://e.org/a_b_",
            "https://e.org/a_b\\_",
            "<https://e.org/a_b>_",
            "https://e.org/a_b_",
        ),
        ("[t](javascript:x)", "t (javascript:x)", "t (javascript:x)", "t (javascript:x)", "t (javascript:x)"),
        (
            "[https://a.org](https://b.org)",
            '<a href="https://b.org">https://a.org</a>',
            "https://a.org (https://b.org)",
            "<https://b.org|https://a.org>",
            "https://a.org (https://b.org)",
        ),
        (
            "- a\n  - b\n    1. c",
            "• a\n  ◦ b\n    1. c",
            "- a\n  - b\n    1. c",
            "• a\n  ◦ b\n    1. c",
            "- a\n  - b\n    1. c",
        ),
        ("> a\n> > b", "<blockquote>a\nb</blockquote>", "> a\n> b", "> a\n> b", "> a\n> b"),
        ("---", "———", "———", "———", "———"),
        (
            "```js\na`\n```",
            '<pre><code class="language-js">a`</code></pre>',
            "```js\na`\n```",
            "```\na`\n```",
            "```\na`\n```",
        ),
    ],
)
def test_each_network_has_its_own_markup(markdown: str, telegram: str, discord: str, slack: str, whatsapp: str) -> None:
    assert only(markdown, "telegram") == telegram
    assert only(markdown, "discord") == discord
    assert only(markdown, "slack") == slack
    assert only(markdown, "whatsapp") == whatsapp


def test_columns_are_aligned_by_the_width_of_their_characters() -> None:
    table = "| a | 高さ |\n|:--|--:|\n| 中文 | 1 |\n| 👩‍👩‍👧 | 22 |\n| שלום | 3 |"
    assert only(table, "plain") == "a    | 高さ\n-----+-----\n中文 |    1\n👩‍👩‍👧   |   22\nשלום |    3"


def test_a_hostile_table_is_not_filled_with_spaces() -> None:
    wide = "|" + "|".join("x" * 60 for _ in range(30)) + "|\n|" + "-|" * 30 + "\n" + ("||" + "|" * 28 + "y|\n") * 400
    assert sum(len(part.text) for part in render_parts(wide, "plain", TextLimits(4000))) < 5 * len(wide)


def test_nesting_beyond_what_is_parsed_is_text() -> None:
    parts = render_parts("> " * 50 + "deep", "plain", TextLimits(500))
    assert "deep" in parts[0].plain
    assert parts[0].plain.count(">") == 50
    assert "deep" in only("- " * 40 + "deep", "telegram")


INJECTIONS = [
    "<b>x</b> <a href='tg://user?id=1'>y</a> </pre> &lt;i&gt;",
    r"\*x\* \_y\_ \~z\~ \~\~z\~\~ \`c\` \|\|s\|\|",
    r"\> q", r"\# h", r"\- l", r"1\. l", r"\-# small", r"\>>> q",
    "@everyone @here <@123456789012345678> <@!123456789012345678> <@&123456789012345678> <#123456789012345678>",
    "<!channel> <!here> <@U123ABC> <#C123> <!subteam^S1> <https://evil.org|good>",
    "<:x:123456789012345678> <t:1618953630> </cmd:123456789012345678>",
    "`<!channel> @everyone`", "```\n<!channel> @everyone </code></pre>\n```",
    r"\[x](https://evil.org)", r"[a\]\(https://evil.org\)](https://e.org)",
]  # fmt: skip


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_stays_text(text: str) -> None:
    telegram_text(only(text, "telegram"))
    html_text(only(text, "html"))
    slack = only(text, "slack")
    assert all(re.match("https?://|mailto:|tel:", each) for each in re.findall("<([^>]*)>", slack))
    discord = only(text, "discord")
    assert escape_mentions(discord) == discord
    outside = re.sub(r"```.*?```|`[^`]*`|\[[^\n]*\]\(https://e\.org\)", "", discord, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<|(?<!\\)[*`]|(?<!\\)\|\||(?<!\\)~~|^\s*(#|>|-#? |\d+[.)] )|(?<!\\)\]\(", outside)


@pytest.mark.parametrize("dialect", ["slack", "whatsapp"])
@pytest.mark.parametrize("text", [r"\*x\*", r"a \_b c\_ d", r"\~e\~", r"**b \* c*x**", r"\*x **b**", r"(\*x\*)"])
def test_marks_of_the_text_make_no_style_where_they_cannot_be_escaped(dialect: Dialect, text: str) -> None:
    """A mark opens a style at the beginning of a word, and closes it at the end of one."""
    ours = {"**b \\* c*x**": 1, "\\*x **b**": 1}.get(text, 0)
    styles = re.findall(r"(?<!\w)([*_~])(?=\S)[^\n]*?(?<=\S)\1(?!\w)", only(text, dialect))
    assert len(styles) == ours


def test_marks_that_style_nothing_are_left_alone() -> None:
    assert (
        only("~/a, ~/b, 2 * 3 * 4, snake_case_name, 5* and 6*", "slack")
        == "~/a, ~/b, 2 * 3 * 4, snake_case_name, 5* and 6*"
    )


def test_control_characters_and_lone_surrogates_are_left_out() -> None:
    assert render_parts("a\x00b\x1b[1m\ud800c", "telegram", ROOM) == [RenderedPart("ab[1mc", "ab[1mc")]


def test_nothing_of_others_is_imported_until_a_text_is_rendered() -> None:
    code = (
        "import sys; from palinurus.text.markdown import *;"
        "print(any(name in sys.modules for name in ('markdown_it', 'wcwidth', 'mdurl')));"
        "render_parts('a', 'plain', TextLimits(9)); print('markdown_it' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "True"]


def calls_of(text: str, dialect: Dialect) -> int:
    """How many functions are called to render it: work, whatever the machine does."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        render_parts(text, dialect, TextLimits(300))
    finally:
        sys.setprofile(None)
    return count


HOSTILE = (
    "[",
    "![",
    "**a ",
    "~~a",
    "*a_",
    "``a`",
    "&amp;",
    "<a@",
    "> ",
    "- ",
    "> - ",
    "- a\n",
    "|a|b|\n|-|-|\n||\n",
    "1. ",
    "|",
)


@pytest.mark.parametrize("unit", [*HOSTILE, "1. ", "|", "https://a_", "中。**文", "- a\n  > - b\n", "a\n", "]("])
@pytest.mark.parametrize("dialect", ["discord", "html"])
def test_twice_the_text_is_about_twice_the_work(unit: str, dialect: Dialect) -> None:
    render_parts("a", dialect, ROOM)
    one = calls_of((unit * 3000)[:3000], dialect)
    two = calls_of((unit * 6000)[:6000], dialect)
    assert two < 2.4 * one + 2000


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["a", "|", "> ", "a\n", "![", "- a\n", "&amp;"])
def test_a_megabyte_takes_seconds(unit: str, cpu_limit: Callable[[float], AbstractContextManager[None]]) -> None:
    with cpu_limit(60):
        parts = render_parts((unit * 1_000_000)[:1_000_000], "telegram", TextLimits(4096))
    assert all(len(part.plain) <= 4096 for part in parts)


def test_a_text_longer_than_what_is_parsed_goes_on_as_plain_paragraphs() -> None:
    line = f"**a** {'b' * 300}\n\n"
    parts = render_parts(line * 700, "telegram", TextLimits(4096))
    assert parts[0].text.startswith("<b>a</b> bb")
    assert parts[-1].plain.startswith("**a** bb")
    assert sum(part.plain.count("b") for part in parts) == 700 * 300
