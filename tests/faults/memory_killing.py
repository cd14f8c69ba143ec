"""Kill -9 an indexer again and again while its files change: after the next sweep the index equals the disk."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw

from palinurus.domain.clock import SystemClock
from palinurus.memory.index import MemoryIndex
from palinurus.memory.scan import Scanner
from palinurus.memory.settings import MemorySettings
from palinurus.memory.store import MemoryStore
from palinurus.memory.terms import word_query
from palinurus.testing.fakes import HashingEmbedder

INDEXER = Path(__file__).with_name("memory_indexer.py")
FILES = 40
PATIENCE = 60
_WORDS = ("anchor", "boat", "harbour", "sail", "rope", "tide", "wind", "lamp", "chart", "keel", "mast", "deck")


async def kill_the_indexer(
    root: Path, *, kills: int, seed: int, progress: Callable[[str], None] = lambda _: None
) -> Counter[str]:
    """What was seen. Raises AssertionError, with the seed in it, when the index was not what the disk is."""
    dice = random.Random(seed)
    rounds = _Rounds(root, dice)
    try:
        for number in range(kills):
            progress(f"kill {number + 1} of {kills} of the indexer")
            await rounds.kill_once()
            if dice.random() < 0.5 or number == kills - 1:
                await rounds.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return rounds.seen


class _Rounds:
    def __init__(self, root: Path, dice: random.Random) -> None:
        self._workspace, self._path, self._dice = root / "workspace", root / "derived" / "main.sqlite", dice
        (self._workspace / "memory").mkdir(parents=True)
        self.seen: Counter[str] = Counter()
        for number in range(FILES):
            self._write(number)

    async def kill_once(self) -> None:
        self._change(self._dice.randint(0, 8))
        arguments = (sys.executable, str(INDEXER), str(self._workspace), str(self._path))
        process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        try:
            for _ in range(self._dice.choice((0, 1, 1, 1, 2, 5))):
                assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"sweeps\n"
            # Not a wait for something to happen: the length of this pause is the fault that is tried.
            await asyncio.sleep(self._dice.uniform(0, 0.3))
            self._change(self._dice.randint(0, 3))
            await asyncio.sleep(self._dice.uniform(0, 0.05))
        finally:
            process.kill()
            assert await process.wait() == -9
        self.seen["kills"] += 1

    async def check(self) -> None:
        """One sweep, and nothing else: then every file and every piece is there, and every counter is right."""
        store = MemoryStore(self._path)
        index = MemoryIndex(store, Scanner(self._workspace, sources=("memory",)), SystemClock(), MemorySettings())
        before = (await index.status(deep=True)).difference_count
        report = await index.sync()
        status = await index.status(deep=True)
        assert status.difference_count == 0, status.differences
        assert report.trouble == "", report
        await self._check_words(store)
        space = HashingEmbedder().space
        missing = {each.digest for each in await store.unembedded(space, 100_000)}
        embedded = (await store.totals()).embedded.get(space.id, 0)
        await index.close()
        await store.close()
        self._check_file(embedded, missing)
        self.seen["sweeps"] += 1
        self.seen["differences mended"] += before

    async def _check_words(self, store: MemoryStore) -> None:
        pieces = [piece for place in await store.files() for piece in await store.pieces_of(place)]
        for word in _WORDS:
            looked = await store.look(word_query(word), None, None, limit=10_000)
            found = {each.id for each in looked.candidates if each.words}
            assert found == {piece.id for piece in pieces if word in piece.text.split()}, word

    def _check_file(self, embedded: int, missing: set[bytes]) -> None:
        connection = apsw.Connection(str(self._path))
        assert connection.pragma("integrity_check") == "ok"
        meanings = [meaning.to_bytes(8, signed=True) for (meaning,) in connection.execute("SELECT meaning FROM pieces")]
        assert embedded == sum(meaning not in missing for meaning in meanings)
        for query in (  # nothing that belongs to nobody
            "SELECT (SELECT count(*) FROM pieces) - (SELECT ifnull(sum(pieces), 0) FROM files)",
            "SELECT (SELECT count(*) FROM pieces) - (SELECT count(*) FROM piece_words_docsize)",
            "SELECT (SELECT count(*) FROM passages) - (SELECT count(*) FROM passage_words_docsize)",
            "SELECT count(*) FROM signs WHERE id NOT IN (SELECT id FROM vectors)",
        ):
            assert connection.execute(query).get == 0, query
        connection.close()

    def _change(self, times: int) -> None:
        for _ in range(times):
            number = self._dice.randrange(FILES)
            file = self._file(number)
            what = self._dice.random()
            if what < 0.2:
                file.unlink(missing_ok=True)
            elif what < 0.4 and file.exists():
                file.replace(self._file(self._dice.randrange(FILES)))
            else:
                self._write(number)

    def _write(self, number: int) -> None:
        lines = [f"- {' '.join(self._dice.choices(_WORDS, k=6))}" for _ in range(self._dice.randint(0, 60))]
        self._file(number).write_text("\n".join(lines))

    def _file(self, number: int) -> Path:
        return self._workspace / "memory" / f"{number}.md"
