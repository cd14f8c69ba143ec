"""Names from outside are never paths: every part of an address and every text in the parameters of every method."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as looking
import pytest
from besieged import Besieged, siege
from doors import methods
from serving import request

from palinurus.gateway.websocket.methods import Methods
from palinurus.runtime.gateway import METHODS as OWN
from palinurus.runtime.gateway import TABLE

pytestmark = pytest.mark.slow

CANARY = "canary-7b1c2f"
STARTING = {"sandbox.test", "sandbox.explain", "mcp.test", "mcp.list", "models.test"}  # programs; questions to models
WORDS = {"idempotencyKey", "message", "thinking"}  # which are for the model


def ways_out(here: Besieged) -> list[str]:
    up = "../" * 12
    secret = str(here.root / "canary.md").lstrip("/")
    return [
        f"{up}{secret}",
        f"/{secret}",
        f"memory/{up}{secret}",
        f"memory\\..\\..\\{secret}",
        f"agent:main:{up}{secret}",
        "memory/link.md",
        f"{here.home}/playground.token",
        "AGENTS.md\0.md",
        "....//....//canary.md",
    ]


@pytest.fixture
def canary(playground: Besieged) -> str:
    """A file beside the workspace, and links to it from inside."""
    file = playground.root / "canary.md"
    file.write_text(CANARY)
    notes = playground.root / "workspace" / "memory"
    notes.mkdir(exist_ok=True)
    for link in (playground.root / "workspace" / "link.md", notes / "link.md"):
        if not link.is_symlink():
            link.symlink_to(file)
    return CANARY


async def test_no_address_leads_to_a_file(playground: Besieged, canary: str) -> None:
    said = {"Authorization": f"Bearer {playground.token}"}
    async with siege(playground):
        for way in (*ways_out(playground), "%2e%2e/%2e%2e/canary.md", "..%2f..%2fcanary.md", "%00", "%2500", "..;/"):
            name = way.replace("\0", "%00").replace("\\", "%5c")
            for path in (
                f"/v1/models/{name}",
                f"/{name}",
                f"/v1/{name}",
                f"/v1/models/palinurus/{name}",
                f"/ws/{name}",
            ):
                told = await request(playground.port, path, **said)
                assert told.status in (400, 404), path
                assert canary.encode() not in told.body
                assert playground.token.encode() not in told.body


async def test_no_text_in_the_parameters_of_a_method_leads_to_a_file(playground: Besieged, canary: str) -> None:
    table = Methods(OWN, TABLE)
    around = outside(playground.root)
    async with siege(playground, changes=True):
        guest = await playground.guest()
        for _, name in methods():
            method = table.get(name)
            if name in STARTING:
                continue
            for field in texts(method.params):
                for way in ways_out(playground):
                    try:
                        told = await guest.ask(name, **(plain(method.params) | {field: way}))
                    except TimeoutError:
                        raise AssertionError(f"{name} does not answer: {field} is {way!r}") from None
                    assert told.ok or told.code not in ("", "FAILED"), (name, field, way, told)
                    answer = str(told.payload)
                    assert canary not in answer, (name, field, way)
                    assert playground.token not in answer, (name, field, way)
        await guest.leave()
    assert outside(playground.root) == around
    assert (playground.root / "canary.md").read_text() == canary


def outside(root: Path) -> set[str]:
    """What lies beside the home and the workspace."""
    inside = (root / "home", root / "workspace")
    return {str(path) for path in root.rglob("*") if not any(path.is_relative_to(each) for each in inside)}


def texts(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Fields that take any text."""
    for field in msgspec.structs.fields(kind):
        if _is_text(looking.type_info(field.type)) and field.encode_name not in WORDS:
            yield field.encode_name


def _is_text(kind: looking.Type) -> bool:
    if isinstance(kind, looking.UnionType):
        return any(map(_is_text, kind.types))
    return isinstance(kind, looking.StrType)


def plain(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Decent values for what a method must be told."""
    return {
        field.encode_name: _plain(looking.type_info(field.type))
        for field in msgspec.structs.fields(kind)
        if field.required
    }


def _plain(kind: looking.Type) -> Any:
    match kind:
        case looking.StrType():
            return "main"
        case looking.IntType() | looking.FloatType():
            return 1
        case looking.BoolType():
            return False
        case looking.LiteralType():
            return kind.values[0]
        case looking.VarTupleType() | looking.ListType():
            return []
        case _:
            return {}
