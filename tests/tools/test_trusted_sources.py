"""Which texts a declared source covers, and what a person may say to mean one."""

from __future__ import annotations

import pytest

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import UNKNOWN, OutsideText, digest_of
from palinurus.tools.grants import TRUST, Grant, GrantedTrust, granted_trust, read_source

PAGE = OutsideText(digest_of("page"), "host:docs.example.org")
MAIL = OutsideText(digest_of("mail"), "file:inbox/2026/1.eml")


def trusting(*sources: str) -> GrantedTrust:
    return granted_trust([Grant(source, TRUST, "agent", args=(source,)) for source in sources])


@pytest.mark.parametrize(
    ("source", "page", "mail"),
    [
        ("host:docs.example.org", True, False),
        ("host:*.example.org", True, False),
        ("host:*.docs.example.org", True, False),
        ("host:example.org", False, False),
        ("host:*.org", True, False),
        ("host:s.example.org", False, False),
        ("file:inbox/", False, True),
        ("file:inbox/2026/", False, True),
        ("file:inbox/2026/1.eml", False, True),
        ("file:inbox", False, False),
        ("file:in/", False, False),
        (f"text:{PAGE.digest}", True, False),
        ("skill:docs", False, False),
    ],
)
def test_a_source_covers_what_lies_in_it(source: str, page: bool, mail: bool) -> None:
    trust = trusting(source)
    assert (trust.covers(PAGE), trust.covers(MAIL)) == (page, mail)


def test_nothing_covers_a_text_of_which_nothing_is_known() -> None:
    every = trusting("host:", "file:", "text:", "host:*.", "", "file:/")
    assert not every.covers(UNKNOWN)
    assert not every.covers(OutsideText("", "sender:telegram:42"))


def test_a_grant_for_a_command_is_no_trust() -> None:
    grant = Grant("a", "exec", "agent", binary="/bin/cat", resolved="/bin/cat", args=("host:docs.example.org",))
    assert not granted_trust([grant]).covers(PAGE)


@pytest.mark.parametrize(
    ("word", "source"),
    [
        ("docs.example.org", "host:docs.example.org"),
        ("https://Docs.Example.org/a?b", "host:docs.example.org"),
        ("*.example.org", "host:*.example.org"),
        ("docs/", "file:docs/"),
        ("./docs/a.md", "file:docs/a.md"),
        ("inbox/2026/1.eml", "file:inbox/2026/1.eml"),
        ("skill:pdf", "skill:pdf"),
    ],
)
def test_a_source_is_named_as_a_person_would(word: str, source: str) -> None:
    assert read_source(word, [MAIL]) == source


def test_a_file_of_the_conversation_is_meant_before_a_host() -> None:
    assert read_source("page.html", [OutsideText("d", "file:page.html")]) == "file:page.html"


@pytest.mark.parametrize(
    "word", ["", "everything", "sender:telegram:42", "client", "/etc/passwd", "~/x/", "../up/", "host:"]
)
def test_what_cannot_be_trusted_is_said(word: str) -> None:
    with pytest.raises(BadRequest, match="cannot be trusted"):
        read_source(word)
