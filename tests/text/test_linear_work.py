"""A lot of hostile text for every function that text from outside is given to: the work grows with the text.

The limit is one of computing time, so a busy machine changes nothing: all texts together take a second or two where
the work is linear, and one of them takes minutes where it is not. `make soak` takes a megabyte of each. Who adds a
pattern adds its function here, and the text that comes near to what it looks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import date
from typing import Any

import pytest

from palinurus.cli.terminal import input as input_line
from palinurus.cli.terminal import markdown, spans
from palinurus.config import source
from palinurus.config.secrets import Redactor
from palinurus.context.extract import extract
from palinurus.context.fact_check import FactDraft, check_drafts, read_drafts
from palinurus.context.notes import extract_notes
from palinurus.context.prompt import clip
from palinurus.context.statement_score import names_in, statement_score
from palinurus.context.view import Line
from palinurus.dispatch import commands, directives, queue
from palinurus.domain import text_places
from palinurus.domain.errors import PalinurusError
from palinurus.domain.events import visible
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Text, UserMessage, wrapped
from palinurus.extensions.knowledge import bank, entities, plain_notes
from palinurus.extensions.knowledge.beliefs import read_opinion
from palinurus.extensions.knowledge.facts import read_bank_bullet, read_facts, unretained_lines
from palinurus.extensions.migrate import importer
from palinurus.extensions.migrate.ingest import facts, names, notes, pages
from palinurus.extensions.migrate.openclaw.entries import read_entry
from palinurus.extensions.migrate.others import read_line
from palinurus.extensions.skill_registry import outline, scan
from palinurus.extensions.skill_registry.bundle import Bundle
from palinurus.memory import search, terms
from palinurus.memory.chunk import chunk
from palinurus.memory.tools import note_line
from palinurus.providers.scout import quotes, scout
from palinurus.providers.wires import failures, http, reply
from palinurus.skills import manifest, use
from palinurus.skills import offer as skill_commands
from palinurus.text import dates
from palinurus.text.blocks import BlockCutter
from palinurus.text.markdown import Dialect, TextLimits, render_parts
from palinurus.text.sentences import is_small_talk
from palinurus.text.tokens import estimate_tokens
from palinurus.text.words import index_words, query_words, roots_of, words_of
from palinurus.tools import worker
from palinurus.tools.commands import shell
from palinurus.tools.exec.permission import fetches
from palinurus.tools.files import patch, replace
from palinurus.tools.registry import split_pieces
from palinurus.tools.web import fetch
from palinurus.workspace.files import parse_identity, strip_front_matter
from support import SOAK

pytestmark = pytest.mark.slow

SIZE = 1_000_000 if SOAK else 100_000
LIMIT = SIZE / 25_000  # seconds of computing for all texts of one function
TODAY = date(2026, 11, 17)
DAY = "memory/2026-11-17.md"
PAGE = bank.BankPage("bank/world.md", "World", ())
PLAIN = plain_notes.PlainLine(DAY, 1, "My boat is green.")
OFFERED = ("memory_search", "memory_get", "memory_write", "ls", "read")

# Repeated to SIZE. For every function: long words, long lines, many lines, and openings that nothing closes.
FEW = ("a", "\n", "`")  # for work that is linear and slow, such as drawing
COMMON = ("a", " ", "\n", "`", "[", '"', "Mr. ", "a=1_b-", "漢")

Work = Callable[[str], Any]
Limit = Callable[[float], AbstractContextManager[None]]
WORK: dict[str, tuple[Work, tuple[str, ...]]] = {}


def of(name: str, work: Work, *near: str, common: tuple[str, ...] = COMMON) -> None:
    """`near`: units of text that come near to what the function looks for."""
    WORK[name] = (work, (*common, *near))


def repeated(unit: str) -> str:
    return (unit * (SIZE // len(unit) + 1))[:SIZE]


def _fed(parser: Any, size: int) -> Work:
    def work(text: str) -> None:
        fresh, data = parser(), text.encode()
        for at in range(0, len(data), size):
            fresh.feed(data[at : at + size])
        fresh.close()

    return work


def _blocks(before: str, size: int) -> Work:
    def work(text: str) -> None:
        stream = markdown.BlockStream()
        text = before + text
        for at in range(0, len(text), size):
            stream.feed(text[at : at + size])
        stream.finish()

    return work


def _blanks(text: str) -> None:
    blanks = outline.Blanks(text, "/ws", "/home/x")
    blanks.add_outside(text)
    blanks.filled({"command": text, "path": text})


def _scanned(text: str) -> None:
    scan.scan_bundle(Bundle({"SKILL.md": text.encode()}))


def _cleaned(text: str) -> None:
    cleaner = facts.Cleaner(Redactor().redact)
    cleaner.lines(text)


def _scan_config(text: str) -> None:
    value = text.replace("\\", "").replace('"', "").replace("\n", "")
    source.scan(f'{{"a": "{value}", /* {value.replace("*/", "")} */ b: [{"1," * 1000}]}}')


def _failures(text: str) -> None:
    for status in (400, 429):
        failures.failure_of(status, text, {}, failures.Call("mock/m"))


def _hunk(*lines: tuple[Any, str]) -> Work:
    return lambda text: patch.apply_hunks("x", text, [patch.Hunk((), lines)])


def _front(before: str) -> Work:
    return lambda text: manifest.read_front_matter(f"{before}{text}\n---\n{text}".encode())


def _said(work: Callable[[list[Line]], object]) -> Work:
    """As what the owner said in one message."""
    return lambda text: work([Line("a", UserMessage((Text(text),), timestamp=1))])


_redact = Redactor(["a configured secret"]).redact

of("redaction", _redact, "sk-", "ghp_", "eyJa.", "AIza" + "x" * 35, "pal_" + "x" * 43, "Bearer ", "1:AA",
   "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN ")  # fmt: skip
of("config: source", _scan_config, "/", "*", "//", "'")
of("config: path", source.parse_path, "a.", "[0]", "'")
of("tokens", estimate_tokens, "a ", "😀")
of("clipped file", lambda text: clip("a.md", text, 20_000))
of("notes by rule", _said(extract_notes), "a. ", "Anna. ", "remember ", "my ", "| a ", common=FEW)
of("summary by rule", _said(extract), "a. ", "a=1, ", "a/b ", common=FEW)
of("facts of a model", _said(lambda lines: check_drafts([FactDraft("the boat is green", "boat")], lines)), common=FEW)
of(
    "facts of a model, endless",
    lambda text: read_drafts(f"[{text}]"),
    "{",
    "[",
    '{"text": "a", "quote": "b"},',
    common=FEW,
)
of("statement", lambda text: (statement_score(text), names_in(text)), "I am ", "my a is ", "Anna ")
of("facts of a note", lambda text: read_facts(DAY, f"## Retain\n- {text}\n"), "@a", "- W @a: b\n", "  a\n", common=FEW)
of("heading of facts", lambda text: read_facts(DAY, f"## Retain{text[4:]}"), "#", "\t#")
of("plain lines of a note", lambda text: list(unretained_lines(f"## Retain{text[4:]}")), "# ", "#\t")
of("plain notes", lambda text: plain_notes._checked([PLAIN], text, str), "```", " ```", '{"facts":')
of(
    "plain notes by rule",
    lambda text: list(plain_notes._by_rule([plain_notes.PlainLine(DAY, 1, text)])),
    "> ",
    "a a",
    common=FEW,
)
of("line of the bank", read_bank_bullet, " [a#L1", " (yours, 2026-11-17", " ^00000000", "#L1")
of("page of the bank", lambda text: bank.merge_page(PAGE, text, {}, (), "2026-11-17"), "- a\n", "## a\n", "(")
of("names of one", lambda text: (entities.called_in(f"@a {text}"), entities.read_declarations(text)), "@a ", "@a", ".",
   "@a is ", "- @a is @b", "calls @a")  # fmt: skip
of("opinion", read_opinion, "favourite a ", "not ", "from a to ")
of("command", commands.parse, "/new ")
of("directives", directives.parse_directives, "/t ", "/t", "/queue ", "/t:", "/model ", "/queue collect cap:1 ")
of("queue directive", lambda text: directives.parse_directives(f"/queue collect{text}"), "cap:1 ", "cap:1")
of("queue", queue.parse_queue, "cap:1 ", "debounce:1")
of("dates", lambda text: dates.resolved(text, TODAY), "yesterday ", "2026-11-17 ", "昨天", "a day ago ", common=FEW)
of("dates of a question", lambda text: terms.asked_about(text, TODAY), "in May ", "11月", common=FEW)
of("session key", SessionKey.parse, "agent:", "a:b:")
of("stems", words_of)
of("question", terms.word_query, "東京")
of("excerpt", lambda text: search.window(text, 700, ["bicycle", "a", "mr"]), "bicycle ")
of("chunks", lambda text: chunk(text, "memory/2026-11-17.md", 400), "# a\n", "| a |\n", "```\n", "```\n\n", "  - a\n",
   "\t", "--\n", "==\n", "a\n\n", "> ", "**a", "|\t")  # fmt: skip
of("note", note_line)
of("text index", index_words, "東京")
of("words of a question", query_words)
of("front matter", _front("---\n"), "a: b\n", "- ", "[1,")
of("description of a skill", _front("---\nname: x\ndescription: "), "\t", "'", "\\")
of(
    "runs of a skill",
    lambda text: use.telling_runs(f"---\nname: x\n---\n{text}".encode()),
    "a b c d e f g h i ",
)
of("call of a skill", lambda text: skill_commands.parse_invocation(f"/{text}", {}))
of("draft of a skill", _blanks, "a/b ", "2026-11-17", "x.py ")
of("scan of a skill", _scanned, "<!--", "curl ", "http://", "ignore ", "send ", "a-a-")
of("words of a command", fetches)
of("text of the web", lambda text: wrapped("x", text), "<<<", "< ", "\u200b", "＜")
of("charset", lambda text: fetch.decode(text.encode()), "<?xml ", "<meta ")
of("pieces of a result", split_pieces)
of("edit", lambda text: replace.apply_edits("x", text, [replace.Edit("zebra crossing", "y")]), "zebra ", "a\n")
of("edit of much", lambda text: replace.apply_edits("x", text, [replace.Edit(text[: len(text) // 2] + "#", "y")]),
   "\n\n", "a\n", "\r\n")  # fmt: skip
of("edit everywhere", lambda text: replace.apply_edits("x", text, [replace.Edit(text[:3], "y", True)]), "\r\n")
of("difference", lambda text: replace.difference(text, text.replace("a", "b")), "a\n")
of("patch", lambda text: patch.parse_patch(f"*** Begin Patch\n{text}\n*** End Patch"), "*** Update File: a\n",
   "*** Add File: a\n+", "@@\n")  # fmt: skip
of("hunk of many lines", lambda text: _hunk(*(("-", line) for line in text.split("\n")[::2]), ("-", "x"))(text), "a\n")
of("hunk that is not there", _hunk(("-", "zebra"), ("+", "x")), "a\n", "zebra \n")
of("search in files", lambda text: worker.matching_lines("zebra", [("x", text)], 100))
of("plan", visible, "\u200b")
of("shell", shell.parse_shell, "'", "\\", "$", "|", "a;", "a|", "'a'")
of("identity", parse_identity, "name: ")
of("front matter of a file", lambda text: strip_front_matter(f"---\n{text}"))
of("scout: intent", scout.understand, "please ", "what ", "remember ", "can you ")
of("scout: note", lambda text: scout.understand(f"remember that {text}"), "my ", ", ")
of("scout: question", lambda text: quotes.parse_question(text, TODAY), "please ", "?", "知道关于")
of("scout: small talk", is_small_talk, "hello ", "how are you ", ":-) ", "ok ")
of("scout: roots", roots_of, "東京", "colour ", "'s ")
of("scout: notes", lambda text: quotes.split_units("memory/a.md", 1, text), "# a\n", "a\n")
of("arguments of a tool", lambda text: reply.read_arguments(text, cut=False), '{"a":', "\\")
of("events", _fed(http.SseParser, 1_000), "data: ", "data: a\n\n", "\r", "\r\n", ":")
of("events in small pieces", _fed(http.SseParser, 7), "data: ", "data: a\n")
of("failures", _failures, "exceed", "exceeded your current quota ", "input token count ", "try again in 1")
of("terminal: harmless", spans.harmless, "\x1b[", "\t")
of("terminal: reply", lambda text: markdown.render_text(text, 80), "**a ", "*a ", "[a](", "# ", "|a|\n", common=FEW)
of("terminal: stream", _blocks("", 50), "# ", "|a|\n", "| - ", "- ", "`` ")
of("terminal: code", _blocks("```\n", 50), "~~~\n")
of("terminal: table", _blocks("|a|b|\n|-|-|\n", 50), "|a|\n", "|")
of("terminal: names of files", lambda text: input_line._NAMED.sub("", text), "@a ", '@"', "'/", "/a\\")
of("import: secrets", importer.looks_secret, "sk-")
of("import: OpenClaw", lambda text: read_entry(text.encode(), 1), '{"a":', "[[")
of("import: others", lambda text: read_line(text.encode(), 1, None), '{"a":', "[[")
of("forget: folded", lambda text: list(text_places.spans(re.compile("a"), text)), "ab", "\u00ad", common=FEW)
of("forget: unescaped", text_places.unescaped, "\\u00e9", "\\")
of("ingest: cleaning", _cleaned, "password: ", "password*", "pin is ", "-----BEGIN PRIVATE KEY-----", "secret=aB")
of("ingest: key of a fact", facts.key_of, "12:00 ")
of("ingest: plain", pages.plain, "[[", "](", "[[a|", "http://", "a-a-")
of("ingest: line", pages.line_key, "[[", "[[a|", "1. ", "(`a`")
of("ingest: kind", facts.kind_by_words, "decided ", "prefers ")
of("ingest: note", lambda text: notes.read_note(text, "memory/2026-11-17.md"), "<!--", "- a. ", "*", "*_", "@a ", "\t")
of("ingest: names", lambda text: (names.acting_names(text), names.owning_names(text)), "Anna said ", "Anna's ", "Aa")
of("ingest: page", pages.part, "<!-- /pal:ingest ", "a: b\n", "---\n")


def _rendered(dialect: Dialect, size: int) -> Work:
    """A part of the text: the parser is linear and slow."""
    return lambda text: render_parts(text[: len(text) // 20], dialect, TextLimits(size))


def _cut_into_blocks(text: str) -> None:
    for prefer in ("paragraph", "sentence"):
        cutter = BlockCutter(prefer=prefer)
        for at in range(0, len(text), 7):
            cutter.add(text[at : at + 7])
        cutter.end()


MARKS = ("[[", "![", "**a ", "~~a", "*a_", "``a`", "<", "&", "\\", "[a](<b", "中。**文", "https://a_")
LISTS = ("- ", "- a\n", "> - ", "> a\nb\n", "|a|b|\n|-|-|\n||\n", "- a\n  - b\n", "a\n\n", "|")
of("markdown: Telegram", _rendered("telegram", 4096), *MARKS, common=FEW)
of("markdown: Discord", _rendered("discord", 2000), *MARKS, *LISTS, common=FEW)
of("markdown: Slack", _rendered("slack", 4000), "*a ", "_ ", common=FEW)
of("markdown: e-mail", _rendered("html", 100_000), *LISTS, common=FEW)
of("markdown: blocks", _cut_into_blocks, "```\n", "a. ", "a\n\n", common=FEW)


@pytest.mark.parametrize("name", WORK)
def test_hostile_text_costs_no_more_than_its_length(name: str, cpu_limit: Limit) -> None:
    work, units = WORK[name]
    with cpu_limit(LIMIT):
        for unit in units:
            with suppress(PalinurusError, ValueError):  # a refusal is an answer, too
                work(f"Well {repeated(unit)} done!")
