"""The newcomer's walk: from `make run` to "it remembered what I said", in under a minute, without a manual."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from page_house import free_port, until
from page_talk import Talk
from playwright.sync_api import expect

pytestmark = pytest.mark.real

REPOSITORY = Path(__file__).parents[3]
LIMIT = 240.0  # seconds: it takes ten, and a minute on a busy machine


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_from_make_run_to_it_remembered_what_i_said(tmp_path: Path, browser: Any) -> None:
    home = tmp_path / "home"
    env = {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": str(tmp_path), "PALINURUS_HOME": str(home),
        "PALINURUS_EMBEDDED": "0", "PALINURUS_GATEWAY_PORT": str(free_port()), "LANG": "C.UTF-8",
    }  # fmt: skip
    began = time.monotonic()
    # What was installed before the walk stays as it is; the clock runs for what a newcomer waits for afterwards.
    process = subprocess.Popen(
        ["make", "-o", ".venv/.ready", "-o", ".venv/.embedded", "run"], cwd=REPOSITORY, env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    heard: list[str] = []
    assert process.stdout is not None
    ears = threading.Thread(target=lambda: heard.extend(process.stdout), daemon=True)  # type: ignore[arg-type]
    ears.start()
    try:
        link = until(lambda: re.search(r"http://\S+/login#code=\S+", "".join(heard)), f"the link: {heard}")[0]
        _walk(browser, link)
        took = time.monotonic() - began
        print(f"from `make run` to “it remembered”: {took:.1f} s")
        assert took < LIMIT
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        ears.join(60)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _walk(browser: Any, link: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    try:
        page = context.new_page()
        page.goto(link)
        # Whatever greets the newcomer, its buttons lead to a box to write in.
        talk = Talk(page)
        expect(talk.box.or_(page.get_by_role("button", name="Start chatting")).first).to_be_visible(timeout=60_000)
        if not talk.box.is_visible():
            page.get_by_role("button", name="Start chatting").first.click()
        talk.say("Remember that the boat is called Alma.")
        talk.hears(re.compile("noted|remember|keep", re.IGNORECASE))
        talk.idle()
        page.get_by_role("button", name="New session").first.click()
        expect(page.get_by_role("log")).not_to_contain_text("Remember that")
        talk.say("What is the boat called?")
        expect(page.get_by_role("log")).to_contain_text("Alma", timeout=60_000)
    finally:
        context.close()
