"""Which files count as text from outside by their kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.workspace.file_origins import KindFiles, UntrustedPaths
from palinurus.workspace.settings import UNTRUSTED_PATHS


@pytest.mark.parametrize(
    "place",
    ["a.eml", "docs/Offer.HTML", "x.htm", "Inbox/1.txt", "work/mail/deep/note.md", "Downloads/tool.sh", "b.mbox"],
)
def test_mail_pages_and_what_lies_where_others_put_it_is(place: str) -> None:
    assert UntrustedPaths(UNTRUSTED_PATHS).has(place)


@pytest.mark.parametrize(
    "place", ["notes.md", "inbox.md", "emails/list.txt", "html/notes.txt", "a.emls", "eml", "inbox"]
)
def test_other_files_are_not(place: str) -> None:
    assert not UntrustedPaths(UNTRUSTED_PATHS).has(place)


@pytest.mark.parametrize(
    ("pattern", "place", "fits"),
    [
        ("docs/mail/*", "docs/mail/1.txt", True),
        ("docs/mail/*", "mail/1.txt", False),
        ("docs/mail/", "docs/mail/deep/1.txt", True),
        ("./Docs/", "docs/1.txt", True),
        ("report-*.txt", "a/Report-7.txt", True),
        ("report-*.txt", "report-7.md", False),
        ("*", "anything", True),
        ("", "anything", False),
        ("/", "anything", False),
    ],
)
def test_an_owner_can_say_it_otherwise(pattern: str, place: str, fits: bool) -> None:
    assert UntrustedPaths((pattern,)).has(place) is fits


def test_a_file_that_comes_later_is_found_and_one_that_went_is_not(tmp_path: Path) -> None:
    files = KindFiles(UntrustedPaths(UNTRUSTED_PATHS))
    (tmp_path / "docs").mkdir()
    assert files.below(str(tmp_path), 100) == []
    (tmp_path / "docs" / "a.html").touch()
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "1").touch()
    (tmp_path / "inbox" / "link").symlink_to("1")
    found = [str(tmp_path / "docs" / "a.html"), str(tmp_path / "inbox" / "1")]
    assert sorted(files.below(str(tmp_path), 100)) == found
    (tmp_path / "inbox" / "1").unlink()
    assert files.below(str(tmp_path), 100) == found[:1]
    assert files.below(str(tmp_path), 0) == []
