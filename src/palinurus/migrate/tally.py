"""Count one transcript while it passes: entries by type, messages by role, a hash of all that was said.

Each entry also goes into a running digest, by which a second migration knows how much of a transcript it has already
carried, and that it is still the same. Digest and search for secrets take many lines at a time: line by line they would
cost more than reading does.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter

from palinurus.config.secrets import Redactor
from palinurus.migrate.foreign import ForeignEntry, ForeignSession
from palinurus.migrate.importer import BETWEEN
from palinurus.migrate.report import Findings, FoundSession
from palinurus.migrate.times import time_ms

SPOKEN = ("user", "assistant")
PILE = 256 * 1024  # bytes of lines that are looked at together

# What every secret of a known shape has in it (see config/secrets.py), in the forms that are found fastest.
_HINTS = tuple(re.compile(hint).search for hint in (
    b"PRIVATE KEY-----", b"sk-", b"gh[pousr]_", b"github_pat_", b"x(?:ox|app-)", b"pal_", b"A(?:KIA|SIA|Iza)", b":AA",
    b"eyJ", b"earer ",
))  # fmt: skip
_shapes = Redactor()


class Tally:
    def __init__(self, session: ForeignSession, findings: Findings) -> None:
        self._session = session
        self._findings = findings
        self._said = hashlib.sha256()
        self._digest = hashlib.sha256()
        self._pile: list[bytes] = []
        self._numbers: list[int] = []  # of the lines in the pile
        self._piled = 0
        self.entries: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.texts = 0
        self.count = 0
        self.bytes = 0
        self._first: str | float | None = None
        self._last: str | float | None = None

    def add(self, entry: ForeignEntry) -> None:
        data = entry.row.payload.encode()
        size = len(data)
        self._pile.append(data)
        self._numbers.append(entry.number)
        self._piled += size
        self.count += 1
        self.bytes += size
        self.entries[entry.kind] += 1
        role = entry.role
        if role:
            self.messages[role] += 1
            if entry.text and role in SPOKEN:
                self._say(entry.text)
        if entry.stamp:
            self._last = entry.stamp
            if self._first is None:
                self._first = entry.stamp
        if self._piled >= PILE:
            self._look_through()

    @property
    def digest(self) -> str:
        """Of all entries so far."""
        self._look_through()
        return self._digest.hexdigest()

    @property
    def first_at(self) -> int:
        """Milliseconds; 0 when nobody wrote down when it was."""
        return time_ms(self._first) or 0

    @property
    def last_at(self) -> int:
        return time_ms(self._last) or self.first_at

    def found(self) -> FoundSession:
        self._look_through()
        session = self._session
        return FoundSession(
            agent=session.agent,
            key=session.key,
            session_id=session.session_id,
            entries=dict(sorted(self.entries.items())),
            messages=dict(sorted(self.messages.items())),
            archived=session.origin != "live",
            origin=session.origin,
            file=session.file,
            label=session.label,
            texts=self.texts,
            texts_sha256=self._said.hexdigest() if self.texts else "",
            same_as=session.same_as,
        )

    def _say(self, text: str) -> None:
        if self.texts:
            self._said.update(BETWEEN)
        self._said.update(text.encode(errors="surrogatepass"))
        self.texts += 1

    def _look_through(self) -> None:
        """Take the pile into the digest, and look for secrets in it."""
        if not self._pile:
            return
        whole = BETWEEN.join((*self._pile, b""))
        self._digest.update(whole)
        if hints := [hint for hint in _HINTS if hint(whole)]:
            for number, data in zip(self._numbers, self._pile, strict=True):
                if any(hint(data) for hint in hints) and looks_secret(data.decode()):
                    self._findings.add(self._session.file, number)
        self._pile, self._numbers, self._piled = [], [], 0


def looks_secret(text: str) -> bool:
    """Whether something in it has the shape of a key or token."""
    return _shapes.redact(text) != text
