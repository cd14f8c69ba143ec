"""The config through the gateway: by its hash, without its secrets, and never a program."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

import pytest
from family_asking import Asking

from palinurus.domain.errors import BadRequest, ConfigError, Stale
from palinurus.gateway.protocol import Refused

TEXT = """{
  // The owner's own words.
  agents: {defaults: {model: 'embedded/scout'}},
  models: {providers: {house: {baseUrl: "http://127.0.0.1:1/v1", apiKey: "sk-very-secret-1234567890"}}},
  mystery: {kept: true}, // unknown to us
}
"""


@pytest.fixture
def config(ask: Asking) -> Asking:
    ask.home.config_path.write_text(TEXT)
    return ask


def text(ask: Asking) -> str:
    return ask.home.config_path.read_text()


async def base(ask: Asking) -> str:
    told: str = (await ask("config.get"))["hash"]
    return told


async def test_the_config_is_shown_with_its_hash_and_without_its_secrets(config: Asking) -> None:
    told = await config("config.get")
    assert told["hash"] == hashlib.sha256(TEXT.encode()).hexdigest()
    assert (told["exists"], told["valid"], told["issues"]) == (True, True, [])
    assert told["raw"] == TEXT.replace("sk-very-secret-1234567890", "***")
    assert told["parsed"]["models"]["providers"]["house"]["apiKey"] == "***"
    assert "very-secret" not in json.dumps(told)
    assert any("mystery" in warning for warning in told["warnings"])


async def test_a_config_that_does_not_exist_or_is_broken_is_told(ask: Asking) -> None:
    ask.home.config_path.unlink()
    told = await ask("config.get")
    assert (told["exists"], told["raw"], told["hash"]) == (False, None, "")
    ask.home.config_path.write_text('{"gateway": {"port": "many"}, "token": "sk-very-secret-1234567890", ')
    told = await ask("config.get")
    assert (told["valid"], told["raw"]) == (False, None)
    assert told["issues"][0]["message"]
    assert "very-secret" not in json.dumps(told)


async def test_a_patch_keeps_comments_unknown_keys_and_secrets(config: Asking) -> None:
    patch = {"agents": {"defaults": {"model": "embedded/other", "timeoutSeconds": 30}}, "new": {"a": 1}}
    done = await config("config.patch", raw=json.dumps(patch), baseHash=await base(config), force=True)
    assert (done["ok"], done["noop"], done["hash"]) == (True, False, await base(config))
    assert "very-secret" not in json.dumps(done)
    assert "// The owner's own words." in text(config)
    assert "// unknown to us" in text(config)
    assert 'apiKey: "sk-very-secret-1234567890"' in text(config)
    assert '"embedded/other"' in text(config)
    await config("config.patch", raw='{"new": null}', baseHash=await base(config))
    assert "new" not in (await config("config.get"))["parsed"]


async def test_a_slip_in_a_patch_or_a_whole_text_is_refused_with_what_was_meant(config: Asking) -> None:
    slip = '{"agents": {"defaults": {"timeoutSecnds": 30}}}'
    whole = (await config("config.get"))["raw"].replace("{", '{"sesion": {},', 1)
    with pytest.raises(BadRequest, match=r"sesion.* is not a config key"):
        await config("config.set", raw=whole, baseHash=await base(config))
    with pytest.raises(BadRequest, match=r"agents\.defaults\.timeoutSecnds is not a config key") as told:
        await config("config.patch", raw=slip, baseHash=await base(config))
    assert "did you mean agents.defaults.timeoutSeconds?" in told.value.hint
    assert text(config) == TEXT
    done = await config("config.patch", raw='{"channels": {"signal": {}}}', baseHash=await base(config))
    assert done["ok"]
    told_of = (await config("config.get"))["warnings"]
    assert any("channels.signal: kept, and not used by this version" in line for line in told_of)


async def test_what_was_shown_can_be_sent_back(config: Asking) -> None:
    told = await config("config.get")
    done = await config("config.set", raw=told["raw"], baseHash=told["hash"])
    assert (done["noop"], text(config)) == (True, TEXT)
    changed = told["raw"].replace("embedded/scout", "embedded/other")
    await config("config.set", raw=changed, baseHash=told["hash"])
    assert text(config) == TEXT.replace("embedded/scout", "embedded/other")
    done = await config("config.patch", raw=json.dumps(told["parsed"]), baseHash=await base(config))
    assert text(config).replace('"embedded/scout"', "'embedded/scout'") == TEXT


async def test_a_new_secret_is_written_and_a_stray_mark_is_refused(config: Asking) -> None:
    patch = {"models": {"providers": {"house": {"apiKey": "sk-another-secret-098765"}}}}
    done = await config("config.patch", raw=json.dumps(patch), baseHash=await base(config))
    assert "another-secret" in text(config)
    assert "another-secret" not in json.dumps(done)
    stray = {"models": {"providers": {"evil": {"baseUrl": "http://127.0.0.1:2", "apiKey": "***"}}}}
    with pytest.raises(BadRequest, match="no earlier value"):
        await config("config.patch", raw=json.dumps(stray), baseHash=await base(config))


async def test_who_goes_by_an_older_text_is_told_and_nothing_is_written(config: Asking) -> None:
    old = await base(config)
    config.home.config_path.write_text(TEXT + "// edited by hand\n")
    for method, raw in (("config.set", "{}"), ("config.patch", '{"a": 1}')):
        with pytest.raises(Stale, match="changed"):
            await config(method, raw=raw, baseHash=old)
        with pytest.raises(BadRequest, match="missing"):
            await config(method, raw=raw)
    assert text(config).endswith("// edited by hand\n")


async def test_the_first_config_needs_no_hash(ask: Asking) -> None:
    ask.home.config_path.unlink()
    await ask("config.patch", raw='{"agents": {"defaults": {"model": "embedded/scout"}}}')
    assert (await ask("config.get"))["parsed"] == {"agents": {"defaults": {"model": "embedded/scout"}}}


@pytest.mark.parametrize("raw", ["", "{", "[]", "1", "null", '{"a": "\\ud800"}', "{a: 1, a: 2}"])
async def test_what_is_no_config_is_refused(config: Asking, raw: str) -> None:
    for method in ("config.set", "config.patch"):
        if method == "config.patch" and raw == "{a: 1, a: 2}":
            continue  # as a patch it says a: 2
        with pytest.raises((BadRequest, ConfigError)):
            await config(method, raw=raw, baseHash=await base(config))
    assert text(config) == TEXT


async def test_a_config_that_could_not_be_used_is_not_written(config: Asking) -> None:
    with pytest.raises(ConfigError, match="maxConcurrent"):
        await config(
            "config.patch", raw='{"agents": {"defaults": {"maxConcurrent": "x"}}}', baseHash=await base(config)
        )
    assert text(config) == TEXT


@pytest.mark.parametrize(
    "patch",
    [
        {"mcp": {"servers": {"x": {"command": "/bin/sh", "args": ["-c", "evil"]}}}},
        {"tools": {"exec": {"security": "full"}}},
        {"env": {"vars": {"PATH": "/tmp/evil"}}},
        {"agents": {"defaults": {"workspace": "/"}}},
        {"agents": {"list": [{"id": "x", "workspace": "/"}]}},
        {"gateway": {"auth": {"mode": "none"}}},
        {"$include": "/etc/passwd"},
        {"models": {"providers": {"x": {"apiKey": {"source": "file", "id": "/etc/passwd"}}}}},
    ],
)
async def test_programs_places_and_locks_are_not_set_by_a_call(config: Asking, patch: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="cannot be set by a call"):
        await config("config.patch", raw=json.dumps(patch), baseHash=await base(config))
    whole = {**(await config("config.get"))["parsed"], **patch}
    with pytest.raises(Refused, match="cannot be set by a call"):
        await config("config.set", raw=json.dumps(whole), baseHash=await base(config))
    assert text(config) == TEXT


async def test_the_schema_of_the_config_is_told(ask: Asking) -> None:
    told = await ask("config.schema")
    assert "agents" in told["schema"]["properties"]
    assert told["uiHints"]["gateway"]["readOnly"]
    assert told["version"]


SERVER = 'mcp: {servers: {far: {url: "http://127.0.0.1:7/mcp", headers: {Authorization: "Bearer very-secret-12345"}}}}'


async def test_a_secret_does_not_go_with_an_address_that_is_changed(ask: Asking) -> None:
    whole = f"{{{SERVER}}}"
    ask.home.config_path.write_text(whole)

    async def patch(**entry: Any) -> Any:
        raw = json.dumps({"mcp": {"servers": {"far": entry}}})
        return await ask("config.patch", raw=raw, baseHash=await base(ask))

    for url in ("http://127.0.0.1:8/mcp", "https://127.0.0.1:7/mcp", "http://collector.example:7/mcp"):
        for more in ({}, {"headers": {"Authorization": "***"}}, {"headers": {"X-Other": "1"}}):
            with pytest.raises((Refused, BadRequest)):
                await patch(url=url, **more)
    assert text(ask) == whole
    assert (await patch(url="http://127.0.0.1:7/other"))["ok"]
    await patch(url="http://127.0.0.1:8/mcp", headers={"Authorization": "Bearer of-my-own-12345"})
    assert "of-my-own" in text(ask)


async def test_a_secret_of_an_included_file_does_not_go_with_an_address_either(ask: Asking) -> None:
    ask.home.config_path.with_name("servers.json5").write_text(f"{{{SERVER}}}")
    whole = '{$include: "servers.json5"}'
    ask.home.config_path.write_text(whole)
    raw = '{$include: "servers.json5", mcp: {servers: {far: {url: "http://127.0.0.1:8/mcp"}}}}'
    with pytest.raises(Refused, match="would be sent to another address"):
        await ask("config.set", raw=raw, baseHash=await base(ask))
    assert text(ask) == whole


async def test_an_address_is_not_taken_away_first_and_changed_then(ask: Asking) -> None:
    ask.home.config_path.write_text(f"{{{SERVER}}}")
    gone = json.dumps({"mcp": {"servers": {"far": {"url": None, "enabled": False}}}})
    with suppress(ConfigError):  # a server without an address may be none
        await ask("config.patch", raw=gone, baseHash=await base(ask))
    back = json.dumps({"mcp": {"servers": {"far": {"url": "http://127.0.0.1:8/mcp"}}}})
    with pytest.raises(Refused, match="would be sent to another address"):
        await ask("config.patch", raw=back, baseHash=await base(ask))


@pytest.mark.parametrize(
    "patch",
    [
        {"skills": {"registry": {"url": "http://127.0.0.1:8"}}},
        {"diagnostics": {"otel": {"endpoint": "http://127.0.0.1:8"}}},
        {"tools": {"web": {"fetch": {"allowPrivate": ["127.0.0.1"]}}}},
        {"models": {"providers": {"house": {"baseUrl": "http://127.0.0.1:8/v1"}}}},
        {"models": {"providers": {"openai": {"baseUrl": "http://127.0.0.1:8/v1"}}}},
    ],
)
async def test_no_stored_secret_is_sent_to_an_address_of_a_call(ask: Asking, patch: dict[str, Any]) -> None:
    whole = """{
      models: {providers: {house: {baseUrl: "http://127.0.0.1:1/v1", apiKey: "sk-very-secret-1234567890"}}},
      skills: {registry: {token: "very-secret-12345"}},
      diagnostics: {otel: {endpoint: "http://127.0.0.1:4318", headers: {"X-Key": "very-secret-12345"}}},
    }"""
    ask.home.config_path.write_text(whole)
    with pytest.raises(Refused, match="cannot be set by a call"):
        await ask("config.patch", raw=json.dumps(patch), baseHash=await base(ask))
    assert text(ask) == whole
