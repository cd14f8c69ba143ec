"""When and for what a rule that lets commands through was last used, as every door shows it."""

from __future__ import annotations

import json
from pathlib import Path

from palinurus.cli.approvals import allowlist_lines, grants_text
from palinurus.config.home import Home, find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.operations.approvals import GrantList, list_grants, make_grant
from palinurus.operations.runs import converse
from palinurus.operations.table import LocalCaller
from palinurus.runtime.runtime import Runtime
from support.wire import Calls, Says, WireServer

LINES = ["wc --version", "date -u"]


def home_with(tmp_path: Path, server: WireServer) -> Home:
    root = tmp_path / "home"
    (root / "workspace").mkdir(parents=True)
    config = {
        "models": {"providers": {"alpha": {"baseUrl": server.base_url}}},
        "agents": {"defaults": {"model": "alpha/a", "sandbox": {"mode": "off"}}},
        "tools": {"exec": {"allowlist": LINES, "host": "gateway"}},
    }
    (root / "palinurus.json").write_text(json.dumps(config))
    return find_home({"PALINURUS_HOME": str(root), "HOME": str(tmp_path)})


class Bench:
    def __init__(self, home: Home) -> None:
        self.runtime = Runtime(home, {"HOME": str(home.user_home), "PATH": "/usr/bin:/bin"})
        self.caller = LocalCaller(self.runtime.services)
        self._count = 0

    async def hears(self, text: str) -> RunResult:
        self._count += 1
        return await converse(self.caller, Inbound(text, str(self._count), attended=False), lambda _: None)

    async def listed(self) -> GrantList:
        return await self.caller.call(list_grants, list_grants.params())


def run(command: str) -> Calls:
    return Calls(("exec", {"command": command}))


async def test_a_line_of_the_config_knows_when_it_let_a_command_through(tmp_path: Path) -> None:
    async with WireServer(run("wc --version | head -n 1"), Says("done"), run("wc --help"), Says("asked")) as server:
        bench = Bench(home_with(tmp_path, server))
        try:
            before = await bench.listed()
            await bench.hears("which wc?")
            await bench.hears("how does it work?")  # which no line covers, and nobody could be asked
            after = await bench.listed()
        finally:
            await bench.runtime.close()
    assert [(each.pattern, each.last_used_at) for each in before.allowlist] == [(line, None) for line in LINES]
    used, unused = after.allowlist
    assert used.last_used_at
    assert (used.last_used_command, unused.last_used_at) == ("wc --version | head -n 1", None)
    assert "last used" in (shown := allowlist_lines(after.allowlist))[1]
    assert shown[1].endswith("for wc --version | head -n 1")
    assert shown[2].endswith("not used yet")


async def test_a_grant_knows_for_what_it_was_last_used(tmp_path: Path) -> None:
    async with WireServer(run("basename /a"), Says("one"), run("basename /b"), Says("two")) as server:
        bench = Bench(home_with(tmp_path, server))
        try:
            await bench.caller.call(make_grant, make_grant.params(rule="basename /*"))
            await bench.hears("say it")
            await bench.hears("and the other")
            (grant,) = (await bench.listed()).grants
        finally:
            await bench.runtime.close()
    assert (grant.last_used_command, bool(grant.last_used_at)) == ("basename /b", True)
    assert "for basename /b" in grants_text((grant,))
