"""Promise 1 under kill -9 for a home in PostgreSQL: a sample of what `make soak` does a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing import kill_again_and_again
from postgres_home import PostgresHome

from support.postgres import Server, new_tenant

pytestmark = pytest.mark.slow


async def test_a_kill_at_any_moment_of_a_turn_loses_nothing_that_was_acknowledged(
    postgres: Server, tmp_path: Path
) -> None:
    home = PostgresHome(tmp_path / "home", postgres.schema, new_tenant())
    await kill_again_and_again(home, kills=3, seed=2, queue="followup")
