"""The config in OpenClaw's shape: looked at without its secrets, replaced or patched by whoever knows its hash.

What would name a program or the way to one is refused (door/untouchable.py). The house takes a new config up before its
next turn; where the gateway itself listens is taken up when it starts again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from palinurus import __version__
from palinurus.gateway.door.untouchable import check_change, untouchable
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations.config import config_schema
from palinurus.operations.config_changes import ConfigView, ConfigWritten, config_look, config_merge, config_replace
from palinurus.sessions.transcript import timestamp


class AskConfig(Struct, frozen=True):
    pass


class SetConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    raw: str  # the whole text, JSON5
    base_hash: str = ""
    dry_run: bool = False
    force: bool = False  # keep new keys that nobody knows
    idempotency_key: str = ""


class PatchConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    raw: str  # an object, JSON5; null takes a key out
    base_hash: str = ""
    replace_paths: tuple[str, ...] = ()  # lists that are replaced whole though their elements have ids
    note: str = ""
    dry_run: bool = False  # checked as if it were to be written, and not written
    force: bool = False
    idempotency_key: str = ""


class ConfigSchema(Struct, frozen=True, rename="camel"):
    schema: dict[str, Any]
    ui_hints: dict[str, Any]
    version: str
    generated_at: str


async def _get(talk: Talk, _: AskConfig) -> ConfigView:
    return await asyncio.to_thread(config_look, talk.desk.ground)


async def _set(talk: Talk, params: SetConfig) -> ConfigWritten:
    return await asyncio.to_thread(
        config_replace,
        talk.desk.ground,
        params.raw,
        params.base_hash,
        check_change,
        dry_run=params.dry_run,
        force=params.force,
    )


async def _patch(talk: Talk, params: PatchConfig) -> ConfigWritten:
    return await asyncio.to_thread(
        config_merge,
        talk.desk.ground,
        params.raw,
        params.base_hash,
        check_change,
        params.replace_paths,
        dry_run=params.dry_run,
        force=params.force,
    )


async def _schema(talk: Talk, _: AskConfig) -> ConfigSchema:
    return ConfigSchema(config_schema(), untouchable(), __version__, timestamp(talk.desk.house.clock.now_ms()))


METHODS = (
    Method("config.get", AskConfig, ConfigView, "admin", _get, about="The config, secrets as marks, and its hash."),
    Method("config.set", SetConfig, ConfigWritten, "admin", _set, about="Replace the whole text of the config file."),
    Method("config.patch", PatchConfig, ConfigWritten, "admin", _patch, about="Merge a patch into the config file."),
    Method("config.schema", AskConfig, ConfigSchema, "admin", _schema, about="The JSON Schema of the config."),
)
