"""A tenant sees nothing of another, whatever is asked and however."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from cross_tenant import OTHER, OWNER, SAME, Tried, all_queries, leaks

from palinurus.extensions.postgres.database import PostgresDatabase
from support.postgres import Server, new_tenant


@pytest.fixture(scope="module")
def schemas(postgres: Server) -> Iterator[tuple[Tried, Tried]]:
    """One with the rows of a tenant, one without any."""
    made = []
    for _ in range(2):
        url = postgres.new_schema()
        PostgresDatabase(url, new_tenant())._close_connections()
        made.append(Tried(url))
    made[0].fill()
    yield made[0], made[1]
    for each in made:
        each.close()


def test_no_query_gives_or_changes_anything_of_another_tenant(schemas: tuple[Tried, Tried]) -> None:
    assert list(leaks(*schemas)) == []


def test_each_query_would_give_or_change_something(schemas: tuple[Tried, Tried]) -> None:
    filled, empty = schemas
    untouched = filled.digest()
    idle = []
    for name, text in all_queries():
        here, behind = filled.try_as(OWNER, name, text)
        if here == empty.try_as(OTHER, name, text)[0] and behind == untouched:
            idle.append(name)
    assert set(idle) == SAME


@pytest.mark.parametrize("table", ["entries", "tokens"])
def test_without_one_policy_it_fails(schemas: tuple[Tried, Tried], table: str) -> None:
    filled, empty = schemas
    filled.connection.execute("SAVEPOINT whole")
    filled.connection.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    assert next(leaks(filled, empty))
    filled.connection.execute("ROLLBACK TO whole")


def test_nobody_writes_for_another_or_for_none(schemas: tuple[Tried, Tried]) -> None:
    filled, _ = schemas
    for tenant, statement in [
        (OTHER, f"INSERT INTO devices (tenant, id, row) VALUES ('{OWNER}', 'd', '{{}}')"),
        ("", "INSERT INTO devices (id, row) VALUES ('d', '{}')"),
        (OWNER, f"UPDATE devices SET tenant = '{OTHER}'"),
        (OTHER, "TRUNCATE devices"),
    ]:
        filled.be(tenant)
        with pytest.raises(psycopg.Error, match=r"policy|violates check|all tenants"), filled.connection.transaction():
            filled.connection.execute(statement)


def test_a_copy_has_no_rows_of_another(schemas: tuple[Tried, Tried]) -> None:
    filled, _ = schemas
    filled.be(OTHER)
    for table in filled.tables:
        with filled.connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
            assert list(copy) == []


async def test_a_pooled_connection_carries_no_tenant_over(postgres: Server) -> None:
    database = PostgresDatabase(postgres.schema, new_tenant())
    await database.write(lambda tx: tx.run("holder.next_epoch"))
    for _ in range(8):  # prepared by now
        assert await database.read(lambda tx: tx.value("holder.current_epoch")) == 1
    with database._pool.connection() as connection:
        assert connection.execute("SELECT count(*) FROM holder").fetchone() == (0,)
        assert connection.execute("SELECT nullif(current_setting('pal.tenant', true), '')").fetchone() == (None,)
    assert database._main is not None
    assert database._main.execute("SELECT count(*) FROM holder").fetchone() == (0,)
    await database.close()
