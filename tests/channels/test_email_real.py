"""The reading half of the e-mail adapter against Dovecot: what the fake server says is what a real one says."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from pwd import getpwnam
from tempfile import TemporaryDirectory

import pytest

from channels.conftest import Account, until
from channels.network import SentFile
from channels.networks.email import FakeMail
from palinurus.dispatch.channels import ChatTarget
from palinurus.extensions.channels.email.channel import EmailChannel

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not shutil.which("dovecot") or os.getuid() != 0, reason="needs dovecot-imapd, and root to start it"
    ),
]

CONFIG = """
base_dir = {root}/run
state_dir = {root}/run
log_path = {root}/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{root}/mail
mail_uid = {uid}
mail_gid = {gid}
first_valid_gid = 0
passdb {{
  driver = static
  args = password=open-sesame-91
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={root}
}}
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
"""


class DovecotMail(FakeMail):
    """Mail arrives in a folder of Dovecot instead of our own server."""

    def __init__(self, root: Path, port: int) -> None:
        super().__init__()
        self._root, self._port = root, port

    def config(self) -> dict[str, object]:
        return {**super().config(), "imap": {"host": "127.0.0.1", "port": self._port, "security": "none"}}

    async def _store(self, raw: bytes) -> int:
        uid = await super()._store(raw)
        waiting = self._root / "mail" / "tmp" / f"{uid}.test"
        waiting.write_bytes(raw)
        waiting.chmod(0o644)
        waiting.rename(self._root / "mail" / "new" / waiting.name)
        return uid


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that Dovecot's own users may enter."""
    with TemporaryDirectory() as folder:
        root, nobody = Path(folder), getpwnam("nobody")
        root.chmod(0o755)
        for each in (root / "mail", *(root / "mail" / name for name in ("cur", "new", "tmp"))):
            each.mkdir()
            os.chown(each, nobody.pw_uid, nobody.pw_gid)
        yield root


@pytest.fixture
async def mail(root: Path) -> AsyncIterator[DovecotMail]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nobody = getpwnam("nobody")
    values = {"root": root, "port": port, "uid": nobody.pw_uid, "gid": nobody.pw_gid}
    (root / "dovecot.conf").write_text(CONFIG.format(**values))
    server = await asyncio.create_subprocess_exec("dovecot", "-F", "-c", str(root / "dovecot.conf"))
    fake = DovecotMail(root, port)
    await fake.start()
    try:
        async with asyncio.timeout(60):
            while not await _listens(port):
                await asyncio.sleep(0.01)
        yield fake
    finally:
        await fake.stop()
        server.terminate()
        await server.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.shows("Dovecot", "mail with files is read, and answered in its thread")
async def test_mail_in_dovecot_is_read_with_its_files_and_answered_in_its_thread(mail: DovecotMail) -> None:
    await mail.write("old")
    data = bytes(range(256)) * 2000
    async with Account(mail).running() as account:
        await mail.garble()
        await mail.write(
            "hello", thread="31", files=(SentFile("é (1).bin", data), SentFile("b.txt", b"b", "text/plain"))
        )
        await mail.write("again", thread="31")
        await until(lambda: len(account.inbox.messages) == 2)
        first, second = account.inbox.messages
        assert [first.text, second.text] == ["hello", "again"]
        assert [(file.name, file.mime_type) for file in first.files] == [
            ("é (1).bin", "application/octet-stream"),
            ("b.txt", "text/plain"),
        ]
        assert b"".join([piece async for piece in account.channel.fetch(first.files[0])]) == data
        assert b"".join([piece async for piece in account.channel.fetch(first.files[1])]) == b"b"
        assert first.sent_at
        other = Account(mail).channel
        assert isinstance(other, EmailChannel)
        thread = await other._find_thread(ChatTarget(second.peer.id, second.peer.thread))
        assert thread.last == second.id
        assert [check.ok for check in await account.channel.check()] == [True, True]
