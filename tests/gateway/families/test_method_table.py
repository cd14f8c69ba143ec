"""The table of methods: all that were promised, each with its scope and a true schema, and none that stumbles."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import msgspec.inspect
import pytest
from family_asking import Asking, all_methods
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.gateway.http.app import FRAMES
from palinurus.gateway.openclaw import METHODS
from palinurus.gateway.protocol import Refused
from palinurus.gateway.websocket.methods import Method
from palinurus.runtime.runtime import Runtime
from palinurus.testing.harness import Harness
from support import examples

# What the issue names, and the scope that each needs.
PROMISED = {
    "read": """agent.wait chat.history sessions.list sessions.preview sessions.describe sessions.get sessions.resolve
        sessions.show sessions.search sessions.subscribe agents.list agents.files.list agents.files.get
        agent.identity.get models.list models.status tools.catalog tools.effective tools.list tools.explain
        approvals.list approvals.show approvals.grants usage.cost usage.status usage.totals health status logs.tail
        memory.search memory.get memory.status memory.collections.list
        skills.list skills.info skills.check workspace.list workspace.read workspace.log
        workspace.diff sessions.export usage.series""",
    "write": """agent chat.send chat.abort sessions.patch sessions.delete
        sessions.send sessions.abort tools.invoke memory.index skills.draft""",
    "approvals": """exec.approval.list exec.approval.get exec.approval.resolve exec.approval.waitDecision
        approvals.answer approvals.grant approvals.revoke""",
    "admin": """chat.inject sessions.reset sessions.compact
        agents.create agents.update agents.delete agents.files.set config.get config.set config.patch
        config.schema exec.approvals.get exec.approvals.set credentials.list credentials.set credentials.remove
        credentials.test models.set workspace.restore workspace.commit""",
}
SLOW = {  # they start programs, ask models, or never end
    *("sandbox.test", "sandbox.explain", "mcp.test", "mcp.list", "models.test"),
    *("memory.search", "memory.index"),
    *("credentials.test", "onboarding.look"),
}


@pytest.mark.parametrize("scope", PROMISED)
def test_every_promised_method_is_there_with_its_scope(ask: Asking, scope: str) -> None:
    found = {name: method.scope for name in PROMISED[scope].split() if (method := ask.methods.find(name))}
    assert found == dict.fromkeys(PROMISED[scope].split(), scope)


def test_what_must_stay_on_the_machine_is_no_method(ask: Asking) -> None:
    assert not {"agent.submit", "gateway.stop", "house.hand_over"} & set(ask.methods.names)


def test_the_schema_holds_together(ask: Asking) -> None:
    schema = ask.methods.schema()
    assert set(schema["methods"]) == set(ask.methods.names)
    assert json.dumps(schema)
    used = {ref.rsplit("/", 1)[1] for ref in _references(schema)}
    assert used <= set(schema["$defs"])
    fields = schema["$defs"][schema["methods"]["sessions.patch"]["params"]["$ref"].rsplit("/", 1)[1]]["properties"]
    assert {"key", "label", "thinkingLevel"} <= set(fields)


def test_the_idempotency_key_stands_beside_the_parameters_of_every_method(ask: Asking) -> None:
    for method in ask.methods.all():
        assert method.name == "tools.invoke" or "idempotency_key" not in method.params.__struct_fields__
    frame = ask.methods.schema(FRAMES)["$defs"]["RequestFrame"]
    assert "idempotencyKey" in frame["properties"]


# OpenClaw has these too: its clients may send more than we know.
TOLERANT = """sessions.preview sessions.delete chat.inject
    agents.files.list agents.files.get agents.files.set exec.approval.list exec.approval.get
    exec.approval.waitDecision exec.approvals.get exec.approvals.set agents.list agents.create agents.update
    agents.delete config.get config.set config.patch credentials.list credentials.set credentials.remove
    credentials.test
    models.set onboarding.look
    cron.add cron.get cron.list cron.remove cron.run cron.runs cron.status cron.update
    channels.status last-heartbeat wake"""


def test_our_own_operations_refuse_what_they_do_not_know(ask: Asking) -> None:
    theirs = {method.name for method in METHODS} | set(TOLERANT.split())
    for method in ask.methods.all():
        assert method.params.__struct_config__.forbid_unknown_fields == (method.name not in theirs), method.name


async def test_a_parameter_that_is_unknown_is_refused_with_what_may_have_been_meant(ask: Asking) -> None:
    with pytest.raises(BadRequest, match=r"sessions\.search: there is no parameter 'qurey'") as refused:
        await ask("sessions.search", query="boat", qurey="boat")
    assert refused.value.hint == "did you mean query?"
    with pytest.raises(BadRequest) as refused:
        await ask("devices.list", everything=True)
    assert refused.value.hint == "it takes none"


async def test_openclaws_methods_take_what_they_do_not_know(ask: Asking) -> None:
    assert (await ask("sessions.list", kinds=["direct"], spawnedBy="x"))["sessions"] == []
    assert await ask("exec.approval.list", unheard=1) == []


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in _references(item)]
    return [found for item in value for found in _references(item)] if isinstance(value, list) else []


plausible = st.sampled_from(
    [
        "agent:main:main",
        "agent:main:direct:x",
        "agent:main:subagent:1",
        "main",
        "global",
        "SOUL.md",
        "memory/x.md",
        "{}",
        '{"a": 1}',
        "high",
        "off",
        "embedded/scout",
        "read",
        "allow-once",
        "2026-11-15",
        "*",
        "",
        "a" * 600,
        "\x00",
        "../..",
        "ünï 自転車",
        "%s",
        "'; drop table sessions",
    ]
)
scalars = st.one_of(
    plausible,
    st.text(max_size=12),
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, -1, 1, 2**31, 2**53, 2**63, 2**64, 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def fitting(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:  # noqa: C901  # a row for each type
    """Values of a type, the odd ones included."""
    match kind:
        case msgspec.inspect.StrType():
            return plausible | st.text(max_size=12)
        case msgspec.inspect.IntType():
            return st.sampled_from([0, -1, 1, 7, 2**31, 2**53, 2**63, 2**64, -(2**64), 10**30]) | st.integers(0, 300)
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case msgspec.inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from([member.value for member in cls])
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*map(fitting, types))
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            return st.lists(fitting(item), max_size=3)
        case msgspec.inspect.DictType(value_type=value):
            return st.dictionaries(st.text(max_size=6), fitting(value), max_size=3)
        case msgspec.inspect.StructType(fields=fields):
            needed = {field.encode_name: fitting(field.type) for field in fields if field.required}
            more = {field.encode_name: fitting(field.type) for field in fields if not field.required}
            return st.fixed_dictionaries(needed, optional=more)
        case _:
            return anything


def requests(methods: tuple[Method, ...]) -> st.SearchStrategy[tuple[str, bytes]]:
    """A method and its parameters: mostly of the right types, now and then anything."""
    of_types = [
        st.tuples(st.just(method.name), fitting(msgspec.inspect.type_info(method.params)).map(msgspec.json.encode))
        for method in methods
    ]
    wild = st.tuples(st.sampled_from([method.name for method in methods]), anything.map(msgspec.json.encode))
    return st.one_of(*of_types, wild)


@pytest.fixture
async def real(pal: Harness, home: Home) -> AsyncIterator[Asking]:
    """A house on a disk, as a gateway has it."""
    runtime = Runtime(home, {})
    await runtime.recover()
    yield Asking(pal, home, runtime.services)
    await asyncio.wait_for(runtime.close(), 60)


REQUESTS = requests(tuple(method for method in all_methods().all() if method.name not in SLOW))


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(request=REQUESTS)
async def test_whatever_is_sent_the_answer_is_a_result_or_a_typed_error(
    real: Asking, request: tuple[str, bytes]
) -> None:
    with contextlib.suppress(PalinurusError, Refused):
        await real.sends(*request)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"key": "\\ud800"}', b"[" * 5000, b'{"a":' * 5000])
async def test_what_is_no_json_is_a_typed_error(ask: Asking, raw: bytes) -> None:
    for name in ("sessions.reset", "sessions.patch", "config.patch", "agents.files.set"):
        with pytest.raises(PalinurusError):
            await ask.sends(name, raw)


async def test_a_model_that_is_none_is_not_chosen_for_a_session(real: Asking) -> None:
    with pytest.raises(PalinurusError, match="not a model"):
        await real("sessions.patch", key="agent:main:main", model="nonsense")
    chosen = await real("sessions.patch", key="agent:main:main", model="embedded/scout")
    assert chosen["resolved"]["model"] == "scout"
