"""Whether a command outside the sandbox brings text from outside, as far as its words tell.

A turn that reads such text is marked, and then asks more. The table is a help against accidents, not a wall: a program
that hides what it does passes for one of the machine's own.
"""

from __future__ import annotations

import re

from palinurus.tools.commands.script import names

_ALWAYS = names(
    """curl wget aria2c http https xh lynx w3m links elinks ssh scp sftp rsync ftp lftp nc ncat netcat socat telnet
    openssl dig host nslookup whois gh glab svn hg npm npx pnpm yarn bun pip pip3 pipx uv uvx poetry conda mamba cargo
    gem bundle brew apt apt-get dnf yum apk pacman docker podman kubectl helm aws gcloud az yt-dlp mutt mail mbsync
    himalaya rclone"""
)
_WITH = {
    "git": names("clone fetch pull push ls-remote submodule remote svn"),
    "go": names("get install mod run"),
}
_WORD = re.compile(r"[\w.+-]+")


def fetches(command: str) -> bool:
    """Quoted or not, in whatever part of the command."""
    words = set(_WORD.findall(command))
    return bool(words & _ALWAYS) or any(name in words and words & further for name, further in _WITH.items())
