"""Proposals for MEMORY.md that are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.config.home import Home
from palinurus.extensions.knowledge import reflect
from palinurus.extensions.knowledge.operations import accept_proposal, list_proposals
from palinurus.extensions.knowledge.operations import reflect as reflect_now
from palinurus.workspace.boundary import MAX_BYTES, Boundary
from support.open_home import opened

OFF = {"search": {"provider": "none"}}


@pytest.fixture(autouse=True)
def notes(workspace: Path) -> None:
    (workspace / "memory").mkdir()
    for day in ("2026-10-01", "2026-10-02"):
        (workspace / "memory" / f"{day}.md").write_text("## Retain\n- W @Anna: Lives in Graz.\n")


async def test_a_kill_before_a_proposal_is_settled_does_not_double_its_line(
    home: Home, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(home, memory=OFF) as here:
        await reflect_now(here.services)
        [waiting] = (await list_proposals(here.services)).proposals

        def killed(boundary: Boundary, record: reflect.BankRecord) -> None:
            raise OSError("killed")

        with monkeypatch.context() as patch:
            patch.setattr(reflect, "write_record", killed)
            with pytest.raises(OSError, match="killed"):
                await accept_proposal(here.services, proposal=waiting.id)
        await accept_proposal(here.services, proposal=waiting.id)
        assert (await list_proposals(here.services)).proposals == ()
    assert (workspace / "MEMORY.md").read_text().count("Lives in Graz.") == 1


async def test_other_words_for_a_proposal_are_stored_without_secrets(home: Home, workspace: Path) -> None:
    secret = "sk-" + "proj-Ab12Cd34Ef56Gh78Ij90Kl12Mn34"
    async with opened(home, memory=OFF) as here:
        await reflect_now(here.services)
        [waiting] = (await list_proposals(here.services)).proposals
        await accept_proposal(here.services, proposal=waiting.id, text=f"Anna's key is {secret}")
    assert "Anna's key is" in (workspace / "MEMORY.md").read_text()
    assert secret not in (workspace / "MEMORY.md").read_text()


def test_the_record_of_many_pages_is_written_and_read_again(workspace: Path) -> None:
    line = "W @Anna: Lives in the house by the river. [memory/2026-10-01.md#L2]"
    pages = {f"bank/entities/Name-{page}.md": {f"{page:08x}": line * 10} for page in range(4_000)}
    record = reflect.BankRecord(pages=pages)
    for _ in range(2):
        reflect.write_record(Boundary(workspace), record)
    assert (workspace / reflect.RECORD).stat().st_size > MAX_BYTES
    assert reflect.read_record(Boundary(workspace)) == record
