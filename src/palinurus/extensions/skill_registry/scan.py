"""A scan of a bundle for the person who decides: scripts, addresses, hidden characters, suspicious phrases and
commands.

All findings are hints. The author of a skill can word it so that no list of phrases finds it; what limits a skill is
what it may do (skills/skill.py), not what is found here. A report without findings proves nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from palinurus.extensions.skill_registry.bundle import Bundle, is_text
from palinurus.skills.skill import SKILL_FILE

MAX_FINDINGS = 60
MAX_HOSTS = 60
MAX_LINE = 4_000  # of a line that is searched; what is longer is itself a finding
MAX_SEARCHED = 300_000  # characters: somebody waits, and a hostile text makes the search slow
SHOWN = 100
What = Literal["hidden", "phrase", "command", "secret", "blob", "comment"]
_SCRIPT_KINDS = "sh bash zsh fish py js mjs cjs ts rb pl php ps1 psm1 bat cmd lua go rs swift applescript"
_SCRIPTS = frozenset(_SCRIPT_KINDS.split())
_URL = re.compile(r"\b(?:https?|ftp|wss?)://[^\s<>\"'`)\]}\\]+", re.IGNORECASE)
_BLOB = re.compile(r"[A-Za-z0-9+/=_-]{300,}")
_COMMENT = re.compile(r"<!--(?!\s*(?:prettier|markdownlint|toc|vale|textlint))(.{20,})")
_JOINERS = "\u200c\u200d"  # part of words in some scripts, and of emoji
_PRIVATE = r"api[ _-]?keys?|tokens?|passwords?|credentials?|secrets?|cookies?|wallet|private key|MEMORY\.md|USER\.md"
_PHRASES = (
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|rule|prompt|message|guideline)s?\b",
    r"\b(?:do not|don't|never)\b.{0,30}\b(?:tell|inform|reveal|show|ask|notify)\b.{0,30}\b(?:user|human|owner)\b",
    r"\b(?:without|no need for)\b.{0,30}\b(?:asking|approval|confirmation|permission|consent)\b",
    r"\byou are now\b|\bnew system prompt\b|\bdeveloper mode\b|\bjailbreak\b",
    rf"\b(?:send|post|upload|exfiltrate|forward|transmit)\b.{{0,60}}\b(?:{_PRIVATE})\b",
    r"\b(?:secretly|silently|covertly)\b",
    r"\b(?:disable|turn off|bypass|skip)\b.{0,40}\b(?:sandbox|approval|security|gatekeeper|antivirus)s?\b",
    r"\b(?:prerequisite|required|must)\b.{0,60}\b(?:download|install)\b.{0,60}\b(?:archive|zip|installer)\b",
)
_COMMANDS = (
    r"\b(?:curl|wget|iwr|invoke-webrequest)\b[^|\n]{0,300}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b",
    r"\b(?:curl|wget)\b[^|\n]{0,300}\|\s*(?:python|perl|ruby|node|iex)",
    r"\b(?:bash|sh|zsh)\b\s+(?:-c\s+)?[\"']?[<$]\(\s*(?:curl|wget)",
    r"\bbase64\s+(?:-d|-D|--decode)\b|\bb64decode\b|\batob\(",
    r"/dev/(?:tcp|udp)/|\bnc\s+-[a-z]*e\b|\bmkfifo\b",
    r"\bxattr\s+-[a-z]*[dc][a-z]*\b.{0,60}quarantine|\bspctl\b.{0,30}disable",
    r"\bchmod\s+(?:\+x|[0-7]*7[0-7]*)\b",
    r"\bsudo\b|\bdoas\b",
    r"(?:~|\$HOME|/home/\w+|/Users/\w+)/\.(?:ssh|aws|gnupg|kube|netrc|config/gcloud|openclaw|palinurus)\b",
    r"\b(?:id_rsa|id_ed25519|login\.keychain|\.netrc|wallet\.dat)\b",
    r"\b(?:crontab|launchctl|systemctl)\b.{0,40}\b(?:-e|load|enable)\b|\.(?:bashrc|zshrc|profile)\b",
    r"\brm\s+-[a-z]*r[a-z]*f?\s+(?:/|~|\$HOME)(?:\s|$|\*)",
    r"\beval\s*\(|\bexec\s*\(|\bos\.system\s*\(|child_process|\bsubprocess\b.{0,60}shell\s*=\s*True",
)
_SECRETS = (
    r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----",
    r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}",
    r"\bgh[pousr]_[A-Za-z0-9]{30,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    r"\bAIza[0-9A-Za-z_-]{35}\b",
    r"\bclh_[A-Za-z0-9_-]{20,}",
)
_LISTS: dict[What, list[re.Pattern[str]]] = {
    "phrase": [re.compile(pattern, re.IGNORECASE) for pattern in _PHRASES],
    "command": [re.compile(pattern, re.IGNORECASE) for pattern in _COMMANDS],
    "secret": [re.compile(pattern) for pattern in _SECRETS],
}


class ScanFinding(Struct, frozen=True, omit_defaults=True):
    what: What
    path: str
    line: int
    text: str  # made so that a terminal shows it and does nothing else


class HostCount(Struct, frozen=True):
    host: str
    times: int


class ScanReport(Struct, frozen=True, rename="camel"):
    files: int
    bytes: int
    scripts: tuple[str, ...]
    hosts: tuple[HostCount, ...]
    findings: tuple[ScanFinding, ...]
    more: int = 0  # findings that are not shown
    unsearched: int = 0  # characters beyond what is searched; a skill of that size is odd by itself

    @property
    def secrets(self) -> tuple[ScanFinding, ...]:
        return tuple(each for each in self.findings if each.what == "secret")


def scan_bundle(bundle: Bundle) -> ScanReport:
    """The instructions first: SKILL.md is searched, however much else there is."""
    findings: list[ScanFinding] = []
    hosts: Counter[str] = Counter()
    total = unsearched = 0
    left = MAX_SEARCHED
    for path, data in sorted(bundle.files.items(), key=lambda item: (item[0] != SKILL_FILE, item[0])):
        if is_text(data):
            whole = data.decode("utf-8")
            text = whole[:left]
            left -= len(text)
            unsearched += len(whole) - len(text)
            hosts.update(_hosts(text))
            for found in _findings(path, text):
                total += 1
                if len(findings) < MAX_FINDINGS:
                    findings.append(found)
    seen = tuple(HostCount(host, times) for host, times in hosts.most_common(MAX_HOSTS))
    scripts = tuple(path for path, data in bundle.files.items() if _is_script(path, data))
    size = sum(map(len, bundle.files.values()))
    return ScanReport(len(bundle.files), size, scripts, seen, tuple(findings), total - len(findings), unsearched)


def visible(text: str, most: int = SHOWN) -> str:
    """Somebody else's text for a terminal, on one line: what cannot be seen is written out."""
    line = " ".join(text[: 4 * most].split())
    shown = "".join(char if char.isprintable() else f"<U+{ord(char):04X}>" for char in line)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _is_script(path: str, data: bytes) -> bool:
    return data.startswith(b"#!") or path.rpartition(".")[2].lower() in _SCRIPTS


def _hosts(text: str) -> Iterator[str]:
    for found in _URL.finditer(text):
        try:
            host = urlsplit(found[0]).hostname
        except ValueError:
            continue
        if host:
            yield visible(host.lower())


def _findings(path: str, text: str) -> Iterator[ScanFinding]:
    lines = text.split("\n")
    for number, whole in enumerate(lines, start=1):
        if hidden := _hidden(whole):
            yield ScanFinding("hidden", path, number, hidden)
        line = whole[:MAX_LINE]
        if len(whole) > MAX_LINE or _BLOB.search(line):
            yield ScanFinding("blob", path, number, visible(whole[:40]))
        for what, patterns in _LISTS.items():
            found = next((match for pattern in patterns if (match := pattern.search(line))), None)
            if found is not None:
                shown = "(not shown)" if what == "secret" else visible(line[max(0, found.start() - 10) :].strip())
                yield ScanFinding(what, path, number, shown)
        if path.lower().endswith(".md") and (comment := _COMMENT.search(line)):
            yield ScanFinding("comment", path, number, visible(comment[0]))


def _hidden(line: str) -> str:
    """Which characters of a line are hidden. Joiners inside words and emoji do not count."""
    if line.isascii() and line.isprintable():
        return ""
    found = Counter(
        f"U+{ord(char):04X}"
        for char in line
        if char not in "\t\r" + _JOINERS and unicodedata.category(char) in ("Cc", "Cf", "Co", "Zl", "Zp")
    )
    return ", ".join(f"{name} x{times}" if times > 1 else name for name, times in found.most_common(5))
