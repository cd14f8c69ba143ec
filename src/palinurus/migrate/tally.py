"""Count one transcript while it passes: entries by type, messages by role, a hash of all that was said.

Each entry also goes into a running digest, by which a second migration knows how much of a transcript it has already
carried, and that it is still the same. Digest and search for secrets take many lines at a time: line by line they would
cost more than reading does.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from palinurus.config.secrets import Redactor
from palinurus.migrate.foreign import ForeignEntry, ForeignSession
from palinurus.migrate.importer import BETWEEN
from palinurus.migrate.report import Findings, FoundSession
from palinurus.migrate.times import time_ms

SPOKEN = ("user", "assistant")
_BETWEEN = BETWEEN.decode()

# What every secret of a known shape has in it (see config/secrets.py). Each begins with its rarest letter, which is
# found far faster than a word; what stands before it is looked at then.
_HINTS = tuple(re.compile(hint).search for hint in (
    b"-(?:(?<=sk-)|(?<=xapp-)|----(?<=PRIVATE KEY-----))", b"_(?:(?<=gh[pousr]_)|(?<=github_pat_)|(?<=pal_))",
    b"A(?:KIA|SIA|Iza|A(?<=:AA))", b"J(?<=eyJ)", b"xox", b"earer ",
))  # fmt: skip
_shapes = Redactor()


class Tally:
    def __init__(self, session: ForeignSession, findings: Findings) -> None:
        self._session = session
        self._findings = findings
        self._said = hashlib.sha256()
        self._digest = hashlib.sha256()
        self.entries: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.texts = 0
        self.count = 0
        self._first: str | float | None = None
        self._last: str | float | None = None

    def add(self, entries: Sequence[ForeignEntry]) -> None:
        """The next ones. All at once: one by one it would cost more than reading them does."""
        self.count += len(entries)
        self.entries.update([entry.kind for entry in entries])
        self.messages.update([entry.role for entry in entries if entry.role])
        self._say([entry.text for entry in entries if entry.text and entry.role in SPOKEN])
        stamps = [entry.stamp for entry in entries if entry.stamp]
        if stamps:
            self._first = stamps[0] if self._first is None else self._first
            self._last = stamps[-1]
        whole = _BETWEEN.join([*(entry.row.payload for entry in entries), ""]).encode()
        self._digest.update(whole)
        self._look_for_secrets(entries, whole)

    @property
    def digest(self) -> str:
        """Of all entries so far."""
        return self._digest.hexdigest()

    @property
    def first_at(self) -> int:
        """Milliseconds; 0 when nobody wrote down when it was."""
        return time_ms(self._first) or 0

    @property
    def last_at(self) -> int:
        return time_ms(self._last) or self.first_at

    def found(self) -> FoundSession:
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

    def _say(self, texts: Sequence[str]) -> None:
        if texts:
            more = ("", *texts) if self.texts else texts
            self._said.update(_BETWEEN.join(more).encode(errors="surrogatepass"))
            self.texts += len(texts)

    def _look_for_secrets(self, entries: Sequence[ForeignEntry], whole: bytes) -> None:
        hints = [hint for hint in _HINTS if hint(whole)]
        for entry in entries if hints else ():
            data = entry.row.payload.encode()
            if any(hint(data) for hint in hints) and looks_secret(entry.row.payload):
                self._findings.add(self._session.file, entry.number)


def looks_secret(text: str) -> bool:
    """Whether something in it has the shape of a key or token."""
    return _shapes.redact(text) != text
