"""The process that reads pages is one that can be lost."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from palinurus.domain.errors import WebError
from palinurus.tools import worker
from palinurus.tools.web import fetch
from palinurus.tools.web.fetch import PageReader


async def read(made: PageReader, html: bytes = b"<title>T</title><p>x") -> fetch.PageText:
    return await asyncio.wait_for(made.read(html, url="http://a.example/", charset="", most=1000), 60)


async def test_a_page_that_takes_too_long_is_given_up_and_its_process_is_gone() -> None:
    with pytest.raises(WebError, match=r"it takes longer than 0\.001 seconds"):
        await read(PageReader(seconds=0.001))
    assert not children()


async def test_a_fetch_that_is_stopped_leaves_no_process() -> None:
    task = asyncio.create_task(read(PageReader(), b"<p>" * 500_000))
    async with asyncio.timeout(60):
        while not children():
            await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not children()


@pytest.mark.parametrize(
    "program",
    [
        "import os; os.abort()",
        "raise RecursionError",
        "print('nonsense')",
        "bytes(1 << 31)",
    ],
    ids=["crash", "exception", "nonsense", "memory"],
)
async def test_a_reader_that_breaks_down_costs_one_clear_line(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(worker.__file__).read_text().partition("    answer_request(")[0]
    broken = tmp_path / "page.py"
    broken.write_text(f"{source}    {program}\n")
    monkeypatch.setattr(worker, "__file__", str(broken))
    with pytest.raises(WebError, match="its reader process failed"):
        await read(PageReader())


async def test_the_reader_sees_nothing_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "x")
    spy = tmp_path / "page.py"
    spy.write_text('import json, os\nprint(json.dumps({"title": "", "text": " ".join(os.environ), "total": 0}))')
    monkeypatch.setattr(worker, "__file__", str(spy))
    assert "SOME_SECRET" not in (await read(PageReader())).text


def children() -> list[str]:
    """Processes of ours that read a page."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and "tools/worker.py" in (entry / "cmdline").read_text():
                found.append(entry.name)
        except (OSError, IndexError, ValueError):
            continue
    return found
