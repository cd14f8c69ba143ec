"""Migrate, backup and forget are extensions: declared as data, imported when used, joined by what others declare."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import Home
from palinurus.domain.text_places import Spot, TextFiles, TextPlace, TextRows, WordCheck, load_places
from palinurus.extensions.forget.operations import Forget, forget
from palinurus.runtime.extensions import EXTENSIONS, LOADED, Extension, Extensions, resolve
from palinurus.runtime.runtime import Runtime
from palinurus.storage.transaction import Transaction

CANARY = "Zanzibar-7741"
NAMES = ("migrate", "backup", "forget")
SCRATCH_SQL = """-- find_scratch_notes --
SELECT number AS at, '', '', '', text FROM scratch_notes;

-- set_scratch_notes --
UPDATE scratch_notes SET text = ?2 WHERE number = ?1;
"""


@pytest.mark.parametrize("extension", [each for each in EXTENSIONS if each.name in NAMES], ids=lambda each: each.name)
def test_what_is_declared_before_it_is_imported_is_what_it_registers(extension: Extension) -> None:
    alone = Extensions([extension])
    app = alone.load()
    assert set(app.commands) == set(extension.commands)
    assert all(alone.find_command(name) is not None for name in extension.commands)
    rows = {name: alone.find_operation(name) for name in app.operations}
    assert all(row is not None and row.name == name for name, row in rows.items())
    assert all(row.local for row in alone.all_operations()) is extension.local
    assert all(callable(resolve(check)) for check in app.checks)
    assert load_places(extension.text_places) or not extension.text_places


@pytest.mark.parametrize("arguments", [("sessions", "list"), ("agent", "--message", "hi"), ("status",)])
def test_what_is_not_used_is_not_imported(home: Home, arguments: tuple[str, ...]) -> None:
    program = (
        "import sys, palinurus.cli.shell as main\n"
        "sys.argv = ['pal', *sys.argv[1:]]\n"
        "try:\n    main.run()\nfinally:\n"
        "    print('\\nIMPORTED', *(name for name in sys.modules if name.startswith('palinurus.extensions.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    imported = {name.split(".")[2] for name in done.stdout.splitlines()[-1].split()[1:]}
    assert imported.isdisjoint(NAMES), done.stdout + done.stderr


class ScratchShelf(TextPlace):
    """Words in a list."""

    shelf: list[str] = []  # noqa: RUF012  # of this test

    async def look(self) -> list[Spot]:
        return [Spot("scratch shelf", "remove", n)] if (n := len(self._held())) else []

    async def forget(self, _: Any) -> list[Spot]:
        for text in self._held():
            self.shelf.remove(text)
        return []

    async def look_again(self) -> tuple[list[Spot], list[WordCheck]]:
        return [], [WordCheck("scratch shelf", len(self._held()))]

    def _held(self) -> list[str]:
        return [text for text in self.shelf if self.search.said.hold(text)]


PLACES: tuple[Any, ...] = ()


async def test_a_store_of_a_scratch_extension_that_joins_is_found_by_forget(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = tmp_path / "sql" / "sqlite" / "scratch.sql"
    sql.parent.mkdir(parents=True)
    sql.write_text(SCRATCH_SQL)
    rows = TextRows("scratch_notes", "scratch notes", "rewrite", "scratch", str(tmp_path / "scratch.py"))
    files = TextFiles(r"scratch/.*\.jsonl", "lines of JSON")
    monkeypatch.setattr(sys.modules[__name__], "PLACES", (rows, files, ScratchShelf))
    with LOADED.added(Extension("scratch", __name__, text_places=(f"{__name__}:PLACES",))):
        services = runtime.services.replace(text_places=runtime.services.build_text_places())

    def make(tx: Transaction) -> None:
        tx.execute("CREATE TABLE scratch_notes (number INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        texts = [json.dumps({"note": f"off to {CANARY}"}), json.dumps({"note": "the boat"})]
        for text in texts:
            tx.execute("INSERT INTO scratch_notes (text) VALUES (?)", (text,))

    await runtime.services.database.write(make)
    log = services.home.root / "scratch" / "log.jsonl"
    log.parent.mkdir()
    log.write_text(json.dumps({"said": CANARY}) + "\n" + json.dumps({"said": "fine"}) + "\n")
    ScratchShelf.shelf[:] = [f"a postcard of {CANARY}", "a shell"]

    plan = await forget(services, Forget(query=CANARY))
    told = {(spot.where, spot.action) for spot in plan.spots}
    ours = {
        ("home.sqlite: scratch notes", "rewrite"),
        ("scratch/log.jsonl", "rewrite"),
        ("scratch shelf", "remove"),
    }
    assert ours <= told
    report = await forget(services, Forget(query=CANARY, apply=True))
    assert ours <= {(spot.where, spot.action) for spot in report.spots}
    assert report.remains == ()
    assert WordCheck("scratch shelf", 0) in report.probes
    assert ScratchShelf.shelf == ["a shell"]
    assert CANARY not in log.read_text()
    left = await services.database.read(lambda tx: tx.execute("SELECT text FROM scratch_notes").fetchall())
    assert [json.loads(text)["note"] for (text,) in left] == ["[forgotten]", "the boat"]
