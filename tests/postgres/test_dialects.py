"""Each query of a home has the same name and takes the same values on every engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import palinurus
from palinurus.extensions.postgres.transaction import parameters_of, translate_query
from palinurus.storage.transaction import declare_queries, load_queries

ROOT = Path(palinurus.__file__).parent
DERIVED = ("memory", "memory_export", "knowledge", "transcripts")  # in files that may be deleted, whatever the home is


def home_nouns() -> list[tuple[str, Path]]:
    """Each noun of the home's database, and the module folder that holds its SQL."""
    found = [(path.stem, path.parents[2]) for path in ROOT.rglob("sql/sqlite/*.sql")]
    return sorted(each for each in found if each[0] not in DERIVED)


def queries_of(noun: str, folder: Path, dialect: str) -> dict[str, str]:
    declare_queries(noun, str(folder / "any.py"))
    return load_queries(noun, dialect)


def without_comments(text: str) -> str:
    return " ".join(word for line in text.splitlines() if not line.startswith("--") for word in line.split())


@pytest.mark.parametrize(("noun", "folder"), home_nouns(), ids=[noun for noun, _ in home_nouns()])
def test_what_postgresql_writes_otherwise_has_the_same_names_and_parameters(noun: str, folder: Path) -> None:
    sqlite, postgres = (queries_of(noun, folder, dialect) for dialect in ("sqlite", "postgres"))
    assert list(postgres) == list(sqlite)
    assert {name: parameters_of(text) for name, text in postgres.items()} == {
        name: parameters_of(text) for name, text in sqlite.items()
    }
    own = folder / "sql" / "postgres" / f"{noun}.sql"
    written = re.findall(r"^-- (\w+) --$", own.read_text(), re.MULTILINE) if own.exists() else []
    assert [name for name in written if without_comments(postgres[name]) == without_comments(sqlite[name])] == []


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("SELECT :a, :b_2::bigint;", "SELECT %(a)s, %(b_2)s::bigint"),
        ("-- why :this\nSELECT ':no', 50 % 2, ':%' LIKE :x", "SELECT ':no', 50 %% 2, ':%%' LIKE %(x)s"),
        ("VALUES (?1, ?, ?),(?1, ?, ?)", "VALUES (%(p1)s, %(p2)s, %(p3)s),(%(p1)s, %(p4)s, %(p5)s)"),
    ],
)
def test_parameters_are_translated_outside_of_texts_and_comments(written: str, sent: str) -> None:
    assert translate_query(written) == sent
