"""One configured server, with its secrets resolved, and what of it may be shown."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from palinurus.sandbox.quarters import clean_env

CALL_SECONDS = 60.0


class ServerSettings(Struct, frozen=True):
    """A program that speaks on its standard streams, or an address that speaks streamable HTTP."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str = ""  # empty: wherever we are
    url: str = ""
    headers: Mapping[str, str] = {}
    timeout_seconds: float = CALL_SECONDS  # of one call, the start of the server included

    @property
    def fingerprint(self) -> str:
        """Names what is kept about it on the disk. Without the values of variables and headers: they are secrets."""
        parts = (self.name, self.command, self.args, sorted(self.env), self.cwd, self.url, sorted(self.headers))
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]

    @property
    def transport(self) -> str:
        return "http" if self.url else "stdio"

    @property
    def where(self) -> str:
        """The command or the address, for people. A query may hold a key, and so may what stands before an @."""
        if not self.url:
            return " ".join((self.command, *self.args))
        address = urlsplit(self.url)
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"

    def environment(self, ours: Mapping[str, str] = os.environ) -> dict[str, str]:
        """All that a child is given: where programs are, who and where it is, and what the config says."""
        plain = clean_env(ours.get("PATH", os.defpath), ours.get("HOME", "/"))
        return {**plain, "LANG": ours.get("LANG", plain["LANG"]), "TERM": ours.get("TERM", plain["TERM"]), **self.env}
