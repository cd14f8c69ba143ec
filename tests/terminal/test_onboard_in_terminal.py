"""`pal onboard` in a real pseudo-terminal: it asks, hides the key, tests, and goes on without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pseudo_terminal import ENTER, Terminal

from support.wire import Answers, Says, WireServer

pytestmark = pytest.mark.slow
KEY = "sk-ABCDEF0123456789abcdef"


def made(tmp_path: Path, server: WireServer) -> dict[str, str]:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    nobody = {"baseUrl": "http://127.0.0.1:9/v1"}
    providers = {"openai": {"baseUrl": server.base_url}, "ollama": nobody, "lmstudio": nobody}
    (root / "palinurus.json").write_text(json.dumps({"models": {"providers": providers}}))
    (root / "workspace").mkdir()
    return {"PALINURUS_HOME": str(root), "HOME": str(tmp_path)}


async def test_a_pasted_key_is_not_shown_and_the_model_is_tested_before_it_is_set(tmp_path: Path) -> None:
    async with WireServer(Answers(401, {"error": {"message": "bad key"}}), otherwise=Says("ok")) as server:
        env = made(tmp_path, server)
        async with Terminal(env, "onboard") as terminal:
            await terminal.sees("Which model should answer?", "openai", "choice [1]")
            terminal.type("1" + ENTER)
            await terminal.sees("key, not shown")
            terminal.type("wrong-key-0123456789" + ENTER)
            await terminal.sees("model [openai/gpt-5-mini]")
            terminal.type(ENTER)
            await terminal.sees("does not answer: auth", "The key was not stored", "try something else?")
            terminal.type(ENTER)
            await terminal.sees("openai      enter a key", "choice [1]")
            terminal.type("1" + ENTER)
            await terminal.sees("key, not shown")
            terminal.type(KEY + ENTER)
            await terminal.sees("model [openai/gpt-5-mini]")
            terminal.type(ENTER)
            await terminal.sees("answers", "Default model is now")
            assert await terminal.ends() == 0
            assert KEY not in terminal.raw
        assert server.headers[-1]["authorization"] == f"Bearer {KEY}"
    config = json.loads(Path(env["PALINURUS_HOME"], "palinurus.json").read_text())
    assert config["agents"]["defaults"]["model"] == "openai/gpt-5-mini"


async def test_whoever_wants_no_model_goes_on_with_scout(tmp_path: Path) -> None:
    async with WireServer() as server:
        async with Terminal(made(tmp_path, server), "onboard") as terminal:
            await terminal.sees("choice [1]")
            terminal.type("0" + ENTER)
            await terminal.sees("Scout stays")
            assert await terminal.ends() == 0
        assert server.requests == []
