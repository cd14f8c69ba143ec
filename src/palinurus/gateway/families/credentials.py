"""Keys of providers by the gateway: stored, listed without their secrets, tried and forgotten.

A key comes in once and never goes out again: no answer, event or log line holds it. It lies where `pal models auth add`
puts it. Where it is sent to is decided by the config on this machine, which no call may turn elsewhere
(door/untouchable.py).
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Struct

from palinurus.domain.errors import BadRequest
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.credentials import CredentialList, credential_add, credential_remove, credentials_list
from palinurus.operations.models import ProbeReport, probe_model
from palinurus.operations.onboarding import begin_with, look_around

Secret = Annotated[str, Meta(min_length=1, max_length=8192)]


class AskCredentials(Struct, frozen=True, rename="camel"):
    agent_id: str = ""


class SetCredential(Struct, frozen=True, rename="camel", omit_defaults=True):
    provider: str
    secret: Secret
    name: str = "default"
    kind: Literal["api_key", "token"] = "api_key"
    agent_id: str = ""
    idempotency_key: str = ""

    def __repr__(self) -> str:  # so that no traceback holds the secret
        return f"SetCredential({self.provider}:{self.name})"


class KeptCredential(Struct, frozen=True, rename="camel"):
    id: str
    provider: str
    replaced: bool
    sealed: bool  # the file is encrypted
    ok: bool = True


class RemoveCredential(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    agent_id: str = ""
    idempotency_key: str = ""


class RemovedCredential(Struct, frozen=True, rename="camel"):
    id: str
    ok: bool = True


class TryCredential(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One tiny request to a model of the provider: the one named, or the one to begin with."""

    provider: str
    model: str = ""
    agent_id: str = ""
    idempotency_key: str = ""


async def _list(talk: Talk, params: AskCredentials) -> CredentialList:
    return await asyncio.to_thread(credentials_list, talk.desk.ground, params.agent_id)


async def _set(talk: Talk, params: SetCredential) -> KeptCredential:
    stored = await asyncio.to_thread(
        lambda: credential_add(
            talk.desk.ground, params.provider, params.secret, name=params.name, kind=params.kind, agent=params.agent_id
        )
    )
    return KeptCredential(stored.id, stored.id.partition(":")[0], stored.replaced, stored.sealed)


async def _remove(talk: Talk, params: RemoveCredential) -> RemovedCredential:
    gone = await asyncio.to_thread(credential_remove, talk.desk.ground, params.id, params.agent_id)
    return RemovedCredential(gone.id)


async def _test(talk: Talk, params: TryCredential) -> ProbeReport:
    provider = params.provider.strip().lower()
    if not provider or "/" in provider:
        raise BadRequest(f"not a provider's id: {params.provider[:80]!r}", hint="for example openai or anthropic")
    model = params.model.strip() or begin_with(await look_around(talk.desk.ground), provider)
    wanted = model if model.startswith(f"{provider}/") else f"{provider}/{model}"
    return await probe_model(talk.desk.house, ref=wanted, agent=params.agent_id)


METHODS = (
    Method(
        "credentials.list",
        AskCredentials,
        CredentialList,
        "admin",
        _list,
        about="Keys that are known and where they come from. Never the keys themselves.",
    ),
    Method(
        "credentials.set",
        SetCredential,
        KeptCredential,
        "admin",
        _set,
        about="Store a key of a provider. It is not given out again.",
    ),
    Method(
        "credentials.remove", RemoveCredential, RemovedCredential, "admin", _remove, about="Forget a key that we keep."
    ),
    Method(
        "credentials.test",
        TryCredential,
        ProbeReport,
        "admin",
        _test,
        about="Ask a model of a provider for one word.",
    ),
)
