"""Replies that a model was talked into, on their way to a chat: files, tags, mentions, and texts that are too much."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels.channel_home import OPEN, channel_home, configure, running
from channels.conftest import until
from channels.memory_network import MemoryNetwork
from channels.networks.discord import FakeDiscord
from channels.networks.slack import FakeSlack
from channels.networks.telegram import FakeTelegram
from palinurus.config.home import Home
from palinurus.dispatch.channels import ChannelCapabilities
from palinurus.domain.errors import QueueFull
from palinurus.domain.keys import SessionKey
from palinurus.extensions.channels.host import run_channels
from palinurus.extensions.channels.sender import read_tags
from palinurus.text.markdown import TextLimits
from support.wire import Says, Waits, WireServer

PRIVATE = (
    "MEMORY.md",
    "./MEMORY.md", "memory.md", "USER.md", "memory/2026-11-18.md", "x/../MEMORY.md", "link.md", "linked/a.md",
    ".git/config", ".pal/backups/MEMORY.md/x.md", "hard.md",
)  # fmt: skip
OUTSIDE = (
    "/etc/passwd", "../home/palinurus.json", "~/.ssh/id_rsa", "file:///etc/passwd", "out.md", "/dev/zero", "pipe",
    "http://169.254.169.254/latest/meta-data", "a\0b", "x" * 5000, "notes", ".",
)  # fmt: skip


@pytest.fixture
def furnished(workspace: Path) -> Path:
    (workspace / "memory").mkdir()
    for path in ("memory/2026-11-18.md", "memory/a.md"):
        (workspace / path).write_text("PRIVATE")
    (workspace / "x").mkdir()
    (workspace / "notes").mkdir()
    (workspace / "plan.txt").write_text("the plan")
    (workspace / "link.md").symlink_to("MEMORY.md")
    (workspace / "linked").symlink_to("memory")
    (workspace / "out.md").symlink_to("/etc/passwd")
    return workspace


async def files_of(home: Home, paths: tuple[str, ...], account: dict[str, Any] = OPEN, **message: Any) -> list[Any]:
    """What a chat gets when the model names these files: its messages."""
    reply = "\n".join(f"MEDIA:{path}" for path in paths)
    async with channel_home(home, account, otherwise=Says(reply)) as channels:
        await channels.network.writes("send it", update=paths[0], **message)
        await channels.rests()
        assert not any(str(channels.home.root) in text for text in channels.network.texts)
        return channels.network.shown


CHATS: dict[str, dict[str, Any]] = {
    "group": {"sender": "7", "chat": "700", "mention": True},
    "group of the owner": {"chat": "700", "mention": True},
    "thread": {"chat": "700", "mention": True, "thread": "9"},
    "guest": {"sender": "7"},
}


@pytest.mark.parametrize("chat", CHATS)
async def test_nobody_but_the_owner_gets_a_file_that_the_agent_may_not_read_there(
    home: Home, furnished: Path, chat: str
) -> None:
    for start in range(0, len(PRIVATE), 10):
        shown = await files_of(home, (*PRIVATE[start : start + 9], "plan.txt"), **CHATS[chat])
        assert [each.part.file for each in shown if each.part.file] == []
        assert shown


@pytest.mark.parametrize("chat", CHATS)
async def test_where_files_may_be_read_the_private_ones_stay_private(home: Home, furnished: Path, chat: str) -> None:
    reading = {"tools": {"alsoAllow": ["read"]}}
    reply = "\n".join(f"MEDIA:{path}" for path in (*PRIVATE[:9], "plan.txt"))
    async with channel_home(home, OPEN, otherwise=Says(reply), **reading) as channels:
        await channels.network.writes("send it", **CHATS[chat])
        await channels.rests()
        assert [each.part.file.name for each in channels.network.shown if each.part.file] == ["plan.txt"]


async def test_no_path_leads_out_of_the_workspace(home: Home, furnished: Path) -> None:
    for start in range(0, len(OUTSIDE), 6):
        shown = await files_of(home, OUTSIDE[start : start + 6])
        assert [each.part.file for each in shown if each.part.file] == []
        assert all(len(each.text) <= 400 for each in shown)
        assert len(shown) < 8


async def test_of_a_hundred_files_ten_are_sent(home: Home, furnished: Path) -> None:
    for number in range(100):
        (furnished / f"{number}.txt").write_text("x")
    shown = await files_of(home, tuple(f"{number}.txt" for number in range(100)))
    assert len([each for each in shown if each.part.file]) == 10


TAGS = ("[[reply_to:]]",
        "[[reply_to:../../x]]", "[[ reply_to : 9 ]]", "[[reply_to:" + "9" * 199 + "]]", "[[reply_to:-1]]",
        "[[reply_to:abc]]", "[[reply_to:\u0663]]", "[[reply_to:<!channel>]]")  # fmt: skip
MENTIONS = "@everyone @here <!channel> <!everyone> <@U1> <@&1> <script>alert(1)</script> <a href='tg://user?id=1'>x</a>"


@pytest.mark.parametrize("kind", [FakeTelegram, FakeDiscord, FakeSlack])
async def test_rubbish_in_tags_and_markup_loses_no_reply_and_calls_nobody(home: Home, kind: Any) -> None:
    network = kind()
    await network.start()
    replies = [f"{tag} answer {number} {MENTIONS}" for number, tag in enumerate(TAGS)]
    script = [Says(each) for each in replies]
    try:
        async with WireServer(*script) as model:
            provider = {"baseUrl": model.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
            said = {"defaults": {"model": "mine/test", "workspace": str(home.root.parent / "workspace")}}
            account = {**network.config(), "dmPolicy": "open", "allowFrom": ["*"]}
            configure(home, agents=said, models={"providers": {"mine": provider}}, channels={network.channel: account})
            async with running(home) as served:
                if hasattr(network, "gateway_url"):
                    network.gateway_url = f"http://127.0.0.1:{served.port}"
                task = asyncio.create_task(run_channels(served.runtime.services))
                for number in range(len(TAGS)):
                    await network.write(f"question {number}")
                    await until(lambda: any(f"answer {number}" in each.text for each in network.sent))  # noqa: B023
                states = {each.state for each in await served.runtime.services.deliveries.recent(limit=50)}
                await served.gateway.close()
                task.cancel()
                await asyncio.wait([task])
    finally:
        await network.stop()
    assert states <= {"sent", "sending"}
    for each in network.sent:
        assert "<!channel>" not in each.text or network.channel == "discord"
        assert "<script>" not in each.text or network.channel == "discord"  # where it is text
        assert "tg://user?id=1'>" not in each.text or network.channel == "discord"
        if network.channel == "discord":
            assert each.raw["allowed_mentions"]["parse"] == []


LONG_REPLIES = {
    "megabytes": "word " * 400_000,
    "fences": "```\nx\n```\n" * 100_000,
    "opened": "```" * 100_000,
    "spaces": "a" + " " * 500_000 + "b",
    "tabs": "\t" * 500_000 + "b",
    "media": "MEDIA:x" + " " * 500_000 + "y",
    "media lines": "MEDIA:x y\n" * 50_000,
    "tags": "[[reply_to_current" * 30_000,
    "tag spaces": "[[reply_to:" + " " * 500_000,
    "brackets": "[" * 500_000,
    "stars": "*a_" * 150_000,
    "quotes": "> " * 200_000,
    "line": "x" * 1_000_000,
}


@pytest.mark.parametrize("reply", LONG_REPLIES)
async def test_no_reply_holds_the_loop(home: Home, reply: str) -> None:
    """The watch over the loop fails a test in which a callback computes for more than 250 ms."""
    network = MemoryNetwork()
    network.capabilities = ChannelCapabilities(TextLimits(16_000), dialect="telegram")
    async with channel_home(home, networks={"t": network}, otherwise=Says(LONG_REPLIES[reply])) as channels:
        await channels.network.writes("go on")
        await channels.rests()
        assert channels.network.texts
        assert all(len(message.part.plain) <= 16_000 for message in channels.network.shown)


@pytest.mark.parametrize("silence", ["NO_REPLY", " no_reply\n", "NO_REPLY\u200b", "", "[[reply_to_current]]", "MEDIA:"])
async def test_silence_is_silence(home: Home, silence: str) -> None:
    async with channel_home(home, OPEN, otherwise=Says(silence)) as channels:
        await channels.network.writes("hush", sender="7", chat="700", mention=True)
        await channels.rests()
        assert all(len(text) < 200 for text in channels.network.texts)
        assert (await channels.deliveries() or [None])[0] is None or (await channels.deliveries())[0].state == "sent"


async def test_a_flood_of_one_person_is_bounded_and_others_are_served(home: Home) -> None:
    """What is not taken is not acknowledged: the network delivers it again."""
    held = Waits(asyncio.Event(), Says("late"))

    def model(request: Any) -> Any:
        return held if "flood" in str(request["messages"][-1]) else Says("aye")

    async with channel_home(home, otherwise=model) as channels:
        try:
            refused = 0
            for number in range(1_000):
                try:
                    await channels.network.writes(f"flood {number} {'x' * 1000}")
                except QueueFull:
                    refused += 1
            await channels.network.writes("and me?", sender="7")
            await channels.network.until(lambda: [each for each in channels.network.shown if each.to == "7"])
            assert refused >= 900
            assert len(channels.services.dispatcher.runs.active(SessionKey.main())) <= 100
        finally:
            held.let_go.set()
        await channels.rests()
        assert "left out" in str(channels.model.requests)
        assert max(len(str(request)) for request in channels.model.requests) < 200_000


def test_tags_take_time_by_their_length(cpu_limit: Any) -> None:
    with cpu_limit(2):
        for text in LONG_REPLIES.values():
            read_tags(text, "9")
