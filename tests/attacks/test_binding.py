"""A gateway that others can reach does not start without a lock; and one that runs cannot be talked out of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from besieged import PAL, Besieged, environment, set_up, siege
from serving import configure, request, running

from palinurus.config.home import Home
from palinurus.domain.errors import ConfigError

pytestmark = pytest.mark.slow

NONE = {"mode": "none"}
REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "lan": ({"bind": "lan", "auth": NONE}, (), "without authentication"),
    "lan by a word": ({"auth": NONE}, ("--bind", "lan"), "without authentication"),
    "all addresses": ({"bind": "custom", "customBindHost": "0.0.0.0", "auth": NONE}, (), "without authentication"),
    "all of IPv6": ({"bind": "custom", "customBindHost": "::", "auth": NONE}, (), "without authentication"),
    "all, mapped": ({"bind": "custom", "customBindHost": "::ffff:0.0.0.0", "auth": NONE}, (), "without authentication"),
    "an address": ({"bind": "custom", "customBindHost": "192.0.2.7", "auth": NONE}, (), "without authentication"),
    "a short token": ({"bind": "lan", "auth": {"token": "hunter2"}}, (), "could be guessed"),
    "a short password": ({"bind": "lan", "auth": {"mode": "password", "password": "x"}}, (), "could be guessed"),
    "an empty token": ({"bind": "lan", "auth": {"token": ""}}, (), "gateway.auth.token"),
    "no password": ({"bind": "lan", "auth": {"mode": "password"}}, (), "needs a password"),
    "a proxy that is trusted": ({"bind": "lan", "auth": {"mode": "trusted-proxy"}}, (), "trusted-proxy"),
    "a name": ({"bind": "custom", "customBindHost": "localhost"}, (), "customBindHost"),
}


IN_A_PROCESS = ("lan", "lan by a word", "a short token")


@pytest.mark.parametrize("case", [case for case in REFUSED if case not in IN_A_PROCESS])
async def test_it_refuses_to_listen(home: Home, case: str) -> None:
    config, _, said = REFUSED[case]
    configure(home, gateway=config)
    with pytest.raises(ConfigError, match=said):
        async with running(home):
            pass
    assert not (home.root / "gateway.json").exists()


@pytest.mark.parametrize("case", IN_A_PROCESS)
def test_it_refuses_to_start_and_says_why_in_one_line(tmp_path: Path, case: str) -> None:
    config, options, said = REFUSED[case]
    set_up(tmp_path, "http://127.0.0.1:9/v1", config)
    words = [str(PAL), "gateway", "run", "--port", "0", *options]
    ended = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode not in (0, None)
    told = [line for line in ended.stderr.splitlines() if not line.startswith("pal: listening on the network")]
    assert len(told) == 1, told
    assert said in told[0]
    assert "hunter2" not in ended.stderr + ended.stdout
    assert not (tmp_path / "home" / "gateway.json").exists()


async def test_the_lock_of_a_running_gateway_is_not_taken_off_by_a_call(gateway: Besieged) -> None:
    """Neither the config in the file nor an admin at the other end of a wire opens the door while it runs."""
    async with siege(gateway):
        guest = await gateway.guest()
        known = (await guest.ask("config.get")).payload
        for patch in (
            {"gateway": {"auth": {"mode": "none"}}},
            {"gateway": {"bind": "lan"}},
            {"gateway": {"allowedHosts": ["evil.example"]}},
            {"gateway": {"controlUi": {"allowedOrigins": ["https://evil.example"]}}},
            {"gateway": {"auth": {"token": "x" * 40}}},
            {"gateway": {"tools": {"allow": ["exec"]}}},
            {"gateway": None},
            {"tools": {"exec": {"security": "full", "ask": "off"}}},
            {"mcp": {"servers": {"x": {"command": "/bin/sh", "args": ["-c", "id"]}}}},
            {"agents": {"defaults": {"workspace": "/"}}},
        ):
            told = await guest.ask("config.patch", raw=json.dumps(patch), baseHash=known["hash"])
            assert (told.code, told.detail) in (("FORBIDDEN", "UNTOUCHABLE"), ("INVALID_CONFIG", "")), (patch, told)
        await guest.leave()


async def test_a_config_that_takes_the_lock_off_does_not_open_a_gateway_that_runs(gateway: Besieged) -> None:
    file = gateway.home / "palinurus.json"
    before = file.read_text()
    config = json.loads(before)
    try:
        file.write_text(json.dumps(config | {"gateway": {"auth": {"mode": "none"}}}))
        assert (await request(gateway.port, "/v1/models")).status == 401
        assert (await request(gateway.port, "/v1/models", Authorization=f"Bearer {gateway.token}")).status == 200
    finally:
        file.write_text(before)


def test_it_listens_on_this_machine_only(gateway: Besieged) -> None:
    """As the kernel tells it: no socket of the process listens anywhere else."""
    held = {path.readlink().name for path in Path(f"/proc/{gateway.process.pid}/fd").iterdir() if path.is_symlink()}
    listening = []
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
        for line in Path(f"/proc/{gateway.process.pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in held:
                listening.append(words[1].partition(":")[0] == loopback)
    assert listening
    assert all(listening)
