"""What a citation names is what is read there, whatever ends the lines and however the text is coded."""

from __future__ import annotations

from pathlib import Path

import pytest
from cited_lines import Talks, lines_of

from palinurus.domain.errors import OutsideWorkspace
from palinurus.memory.chunk import chunk
from palinurus.memory.get import LineRange
from palinurus.memory.scan import Scanner, decoded
from palinurus.memory.settings import Collection

ODD = {
    "carriage returns alone": b"one\rtwo boats\rthree\r",
    "a stray carriage return": b"one\nbro\rken\n\ntwo boats\n",
    "both": b"one\r\n\r\ntwo boats\r\n",
    "other breaks": "one\x0c\u2028\x85\ntwo boats\x0b\n".encode(),
    "UTF-16": "one\ntwo boats\n".encode("utf-16"),
    "a byte order mark": "\ufeffone\n\ntwo boats\n".encode(),
    "stray bytes": b"\xe9\x00one\ntwo boats \xff\n",
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_the_cited_lines_are_the_ones_that_are_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "MEMORY.md").write_bytes(data)
    (piece,) = [each for each in chunk(decoded(data), "MEMORY.md", 400).pieces if "boats" in each.text]
    found = lines_of(tmp_path, LineRange(f"MEMORY.md#L{piece.start_line}-L{piece.end_line}"))
    assert found.text == piece.text


@pytest.mark.parametrize("path", ["one/diary.md", "one/.hidden/boats.md", "one/node_modules/boats.md"])
def test_of_a_collection_only_what_search_could_find_is_read(tmp_path: Path, path: str) -> None:
    for name in ("boats.md", "diary.md", ".hidden/boats.md", "node_modules/boats.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("words")
    mask = "{boats,**/boats}.md"
    collections = (Collection("one", tmp_path, mask),)
    assert [*Scanner(tmp_path / "ws", collections, sources=()).scan().stamps] == ["one/boats.md"]
    assert lines_of(tmp_path, LineRange("one/boats.md"), Talks(collections)).text == "words"
    with pytest.raises(OutsideWorkspace, match="not in memory"):
        lines_of(tmp_path, LineRange(path), Talks(collections))
