"""Documents into rows and out of them again. Everything here runs inside a transaction of the writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from palinurus.memory.document import Chunked, Piece, Place, Stamp
from palinurus.memory.store import FileRow
from palinurus.storage.queries import load_queries

SQL = load_queries("memory.sql")
_LENGTH = 1 << 20  # a place in a text and a length, as one number


def rows_of(connection: apsw.Connection, query: str, values: Any = ()) -> list[Any]:
    return connection.execute(SQL[query], values).fetchall()


def value_of(connection: apsw.Connection, query: str, values: Any = ()) -> Any:
    """Of a query with one row and one column; None when there is no row."""
    return connection.execute(SQL[query], values).get


def put(connection: apsw.Connection, documents: Sequence[tuple[FileRow, Chunked]]) -> int:
    """Replace them; the number of pieces that went for it."""
    went = drop(connection, [row.place for row, _ in documents])
    new = _Rows(*rows_of(connection, "next_ids")[0])
    first = new.piece
    for row, cut in documents:
        new.add(row, cut)
    for query, rows in new.rows.items():
        connection.executemany(SQL[query], rows)
    connection.execute(SQL["set_ids"], (new.piece, new.passage, new.context))
    connection.execute(SQL["count_embedded"], {"sign": 1, "first": first, "last": new.piece - 1})
    return went


def drop(connection: apsw.Connection, places: Sequence[Place]) -> int:
    """The number of pieces that went."""
    went = 0
    for place in places:
        for part in rows_of(connection, "file_parts", (place.source, place.path)):
            went += _drop(connection, *part)
    return went


def touch(connection: apsw.Connection, rows: Sequence[FileRow]) -> None:
    connection.executemany(SQL["touch_file"], [(*_stamp(row.stamp), row.place.source, row.place.path) for row in rows])


def file_row(row: tuple[Any, ...]) -> FileRow:
    source, path, size, mtime_ns, inode, ctime_ns, digest, indexed_at, pieces, recipe = row
    stamp = Stamp(size, mtime_ns, inode, ctime_ns)
    return FileRow(Place(source, path), stamp, digest, indexed_at, pieces, recipe)


def meaning_number(digest: bytes) -> int:
    """How a meaning is told from others: 64 bits are enough for millions, and a number takes little room."""
    return int.from_bytes(digest[:8], signed=True)


def meaning_digest(number: int) -> bytes:
    return number.to_bytes(8, signed=True)


def embedded_text(text: str, embed: int | str | None) -> str:
    """What `_embed` put away."""
    if embed is None:
        return text.strip()
    if isinstance(embed, str):
        return embed
    at, length = divmod(embed, _LENGTH)
    return text[at : at + length]


class _Rows:
    """The rows of a batch of documents, by the query that writes them."""

    def __init__(self, piece: int, passage: int, context: int) -> None:
        self.piece, self.passage, self.context = piece, passage, context
        self.rows: dict[str, list[tuple[Any, ...]]] = {
            "add_file": [],
            "add_context": [],
            "add_piece": [],
            "add_passage": [],
            "add_piece_words": [],
            "add_passage_words": [],
        }

    def add(self, row: FileRow, cut: Chunked) -> None:
        contexts: dict[str, int] = {}
        begins: dict[int, int] = {}  # passage: its first piece
        pieces, words = self.rows["add_piece"], self.rows["add_piece_words"]
        for number, piece in enumerate(cut.pieces, start=self.piece):
            context = contexts.setdefault(piece.context, self.context + len(contexts)) if piece.context else None
            begins.setdefault(piece.passage, number)
            meant = (meaning_number(piece.digest), _embed(piece))
            pieces.append((number, piece.start_line, piece.end_line, piece.text, context, *meant))
            words.append((number, piece.words))
        self.rows["add_context"] += [(id_, text) for text, id_ in contexts.items()]
        self.rows["add_passage"] += [(self.passage + number, first) for number, first in begins.items()]
        self.rows["add_passage_words"] += [(self.passage + number, cut.passages[number].words) for number in begins]
        self._file(row, len(cut.pieces), len(cut.passages), len(contexts))

    def _file(self, row: FileRow, pieces: int, passages: int, contexts: int) -> None:
        whose = (row.place.source, row.place.path, *_stamp(row.stamp), row.digest, row.indexed_at, row.recipe)
        parts = (self.piece, pieces, self.passage, passages, self.context, contexts)
        self.rows["add_file"].append(whose + parts)
        self.piece += pieces
        self.passage += passages
        self.context += contexts


def _drop(
    connection: apsw.Connection,
    file: int,
    piece: int,
    pieces: int,
    passage: int,
    passages: int,
    context: int,
    contexts: int,
) -> int:
    whole = (piece, piece + pieces - 1)
    connection.execute(SQL["count_embedded"], {"sign": -1, "first": whole[0], "last": whole[1]})
    connection.execute(SQL["drop_pieces"], whole)
    connection.execute(SQL["drop_piece_words"], whole)
    connection.execute(SQL["drop_passages"], (passage, passage + passages - 1))
    connection.execute(SQL["drop_passage_words"], (passage, passage + passages - 1))
    connection.execute(SQL["drop_contexts"], (context, context + contexts - 1))
    connection.execute(SQL["drop_file"], (file,))
    return pieces


def _embed(piece: Piece) -> int | str | None:
    """What is embedded, in as little room as can be: mostly it is the text, or a part of it."""
    if piece.meaning == piece.text.strip():
        return None
    at = piece.text.find(piece.meaning)
    return at * _LENGTH + len(piece.meaning) if at >= 0 and len(piece.meaning) < _LENGTH else piece.meaning


def _stamp(stamp: Stamp) -> tuple[int, int, int, int]:
    return (stamp.size, stamp.mtime_ns, stamp.inode, stamp.ctime_ns)
