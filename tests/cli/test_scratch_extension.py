"""What somebody else can add in less than sixty lines (notebook.py), and where it then appears."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.config.schema import json_schema
from palinurus.gateway.websocket.methods import Methods
from palinurus.runtime.extensions import LOADED, Extension
from palinurus.runtime.runtime import Runtime
from palinurus.runtime.table import TABLE

HERE = Path(__file__).parent
NOTEBOOK = Extension(
    "notebook",
    "notebook",
    commands={"notebook": "Write a page of the notebook."},
    operations=("notebook.add",),
    jobs=("notebook.write",),
    tools="notebook",
    config={"notebook:NotebookSettings": ("notebook",)},
    text_places=("notebook:PLACES",),
)


@pytest.fixture(autouse=True)
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(HERE))
    with LOADED.added(NOTEBOOK):
        yield
    sys.modules.pop("notebook", None)


def configure(home: Home, **pages: object) -> None:
    config = json.loads(home.config_path.read_text())
    home.config_path.write_text(json.dumps({**config, "notebook": pages}))


def test_it_takes_less_than_sixty_lines() -> None:
    assert len((HERE / "notebook.py").read_text().splitlines()) < 60


def finish_jobs(home: Home) -> None:
    """As a process does that opens the home and stays until nothing is left to do."""

    async def work() -> None:
        runtime = Runtime(home, {})
        await runtime.recover()
        async with asyncio.timeout(60):
            await runtime.services.jobs.idle()
        await runtime.close()

    asyncio.run(work())


def test_its_operation_is_a_command_a_method_and_a_row_of_the_schema(pal_command: Pal) -> None:
    assert "Write a page of the notebook." in pal_command("--help").out
    assert pal_command("notebook", "the sea is calm").out == "noted: the sea is calm\n"
    assert pal_command("notebook", "the sea is rough", "--json").json == {"text": "the sea is rough"}
    assert "notebook.add" in Methods((), TABLE).names
    assert "notebook.add" in {row.name for row in TABLE}


def test_its_section_is_checked_and_told(pal_command: Pal, home: Home) -> None:
    configure(home, pages=0)
    wrong = pal_command("config", "validate")
    assert (wrong.code != 0, "notebook.pages" in wrong.out + wrong.err) == (True, True)
    configure(home, pages=3)
    assert pal_command("config", "validate").code == 0
    assert pal_command("config", "get", "notebook.pages").out == "3\n"
    assert "notebook" in json_schema()["properties"]
    assert "3 pages" in pal_command("doctor", "--no-model").out


def test_its_tool_is_there_where_the_config_has_it(pal_command: Pal, home: Home) -> None:
    assert "notebook_look" not in pal_command("tools", "list").out
    configure(home, pages=3)
    assert "notebook_look" in pal_command("tools", "list").out


def test_its_job_survives_a_restart(pal_command: Pal, home: Home) -> None:
    (home.root / "notebook.txt").mkdir()  # so that nothing can be written
    pal_command("notebook", "the sea is calm")
    (job,) = pal_command("jobs", "list", "--json").json["jobs"]
    assert job["kind"] == "notebook.write"
    assert job["state"] in ("waiting", "retry", "running")  # running: by the process that lists it
    (home.root / "notebook.txt").rmdir()
    pal_command("jobs", "retry", job["id"])
    finish_jobs(home)
    assert (home.root / "notebook.txt").read_text() == "the sea is calm\n"
    assert [each["state"] for each in pal_command("jobs", "list", "--json").json["jobs"]] == ["done"]


def test_its_words_are_found_by_forget(pal_command: Pal, home: Home) -> None:
    pal_command("notebook", "the password is swordfish")
    finish_jobs(home)
    assert "swordfish" in (home.root / "notebook.txt").read_text()
    done = pal_command("forget", "--query", "swordfish", "--apply")
    assert done.code == 0, done.err
    assert "swordfish" not in (home.root / "notebook.txt").read_text()


def test_it_is_not_imported_for_nothing(pal_command: Pal) -> None:
    assert pal_command("sessions", "list").code == 0
    assert "notebook" not in sys.modules
