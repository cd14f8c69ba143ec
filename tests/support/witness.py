"""Who watches the promises during a simulated life, and says which one was broken.

The witness reads the stores themselves, past all faults, and sees every request that the model receives. Each check
is a method named after what it proves, with the number of its promise; what it finds goes into `broken`, because an
exception inside the house would be one more fault for the house to handle.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from palinurus.config.secrets import Redactor
from palinurus.context.assemble import violations
from palinurus.context.view import fold
from palinurus.dispatch.runs import result_of
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, UserMessage
from palinurus.ledger.audit_log import AuditLog
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.session import Session
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Broken, Entry, MessageEntry
from palinurus.storage.jobs import RUN, Job, JobQueue

from .story import Letter, Story, labels
from .windowed import is_flush, is_summary

MOST_TEXT, MOST_CALLS = 1_100_000, 64  # of one reply that is kept
WHOLE_EVERY = 8  # looks, of which one compares whole transcripts
CANARY = "yellow canary"  # stands in every private file and nowhere else


class Witness:
    def __init__(self, sessions: SessionStore, queue: JobQueue, secrets: tuple[str, ...], audit: AuditLog) -> None:
        self.broken: list[str] = []
        self.letters: list[Letter] = []
        self.requests = 0
        self._sessions = sessions
        self._queue = queue
        self._audit = audit
        self._redact = Redactor(secrets).redact
        self._secrets = [form for secret in secrets for form in (secret, msgspec.json.encode(secret)[1:-1].decode())]
        self._stories: dict[str, Story] = {}  # by session key
        self._keys: dict[str, SessionKey] = {}
        self._last: dict[str, tuple[str, ModelRequest]] = {}  # by session key: the epoch's entry and the request
        self._said: Counter[int] = Counter()
        self._by_key: dict[str, Letter] = {}  # by idempotency key
        self._moment = 0
        self._looks = 0
        self._folded: dict[str, int] = {}  # by session key: entries, when it was last looked at what is still read

    # -- what the clients and the model tell --------------------------------------------------------------------------

    def moment(self) -> int:
        """A count that only goes up: what is acknowledged before another thing is sent has the smaller one."""
        self._moment += 1
        return self._moment

    def posted(self, letter: Letter) -> None:
        letter.first_sent = self.moment()
        self.letters.append(letter)
        self._keys[letter.key] = SessionKey.parse(letter.key)
        self._by_key[letter.idempotency_key] = letter

    def acknowledged(self, letter: Letter, run_id: str) -> None:
        if letter.run_id and letter.run_id != run_id:
            self._breaks(1, f"letter {letter.number} sent twice became two runs: {letter.run_id} and {run_id}")
        letter.run_id = run_id
        letter.acknowledged = letter.acknowledged or self.moment()

    async def answered(self, result: RunResult, *, lost: bool = False) -> None:
        """(10) One result per run, the same for everyone who asks; the only exception is a disk that failed.

        `lost`: told by one who has lost the home, so that the next one may have answered meanwhile.
        """
        job = await self._queue.find(result.run_id)
        if job is None:
            self._breaks(1, f"run {result.run_id} has an answer and no row")
            return
        letter, stored = self._by_key[_sent_under(job)], result_of(job)
        letter.set_aside = letter.set_aside or (lost and result.status == "error")
        if stored is None:
            letter.set_aside = True
            if result.status != "error":
                self._breaks(10, f"letter {letter.number} was told {result.status} and nothing of it was kept")
        elif stored != result and not (letter.set_aside and result.status == "error"):
            self._breaks(10, f"letter {letter.number} was told {result} while {stored} was kept")

    async def received(self, request: ModelRequest) -> None:
        self.requests += 1
        key = await self._whose(request)
        if not key:
            return
        self._valid(key, request)
        try:
            text = msgspec.json.encode(request).decode()
        except UnicodeEncodeError:
            self._breaks(7, f"a request of {key} cannot be written as UTF-8")
            return
        self._private(key, text)
        self._holds_no_secret(f"a request of {key}", text)
        if not is_summary(request) and not is_flush(request):
            await self._grows_at_its_end(key, request)

    async def _whose(self, request: ModelRequest) -> str:
        """(17) The session that a request belongs to: it holds the words of one, or what they were summed up to."""
        keys = {self.letters[label].key for message in request.messages for label in labels(message)}
        if not keys:
            stories = {key: await self._story(key) for key in self._keys}
            first = request.messages[0].text
            keys = {key for key, story in stories.items() if any(summary in first for summary in story.summaries)}
            if is_summary(request) and len(keys) != 1:  # of a long reply alone: nobody's words, and like any other's
                return ""
        if len(keys) != 1:
            self._breaks(17, f"a request holds the words of {sorted(keys) or 'nobody'}")
            return ""
        return keys.pop()

    # -- what is checked of every request -----------------------------------------------------------------------------

    def _valid(self, key: str, request: ModelRequest) -> None:
        """(7) No provider could refuse it."""
        for wrong in violations(request.messages):
            self._breaks(7, f"a request of {key}: {wrong}")
        if isinstance(request.messages[-1], AssistantMessage):
            self._breaks(7, f"a request of {key} ends with a reply")

    def _private(self, key: str, text: str) -> None:
        """(17) Private memory is not read where others listen."""
        if not self._keys[key].is_private and CANARY in text:
            self._breaks(17, f"a request of {key} holds private memory")

    async def _grows_at_its_end(self, key: str, request: ModelRequest) -> None:
        """(20) Within an epoch the last request is a prefix of this one; a new epoch has a reason that is true."""
        story = await self._story(key)
        if not story.epochs:
            self._breaks(20, f"{key} sent a request without an epoch")
            return
        entry_id, epoch, _ = story.epochs[-1]
        if request.head != epoch.head:
            self._breaks(20, f"{key} sent another head than its epoch has stored")
        last_id, last = self._last.get(key, ("", None))
        if last is not None and last_id == entry_id:
            if request.messages[: len(last.messages)] != last.messages:
                at = next(i for i, old in enumerate(last.messages) if request.messages[i : i + 1] != (old,))
                self._breaks(20, f"{key} rewrote message {at} of {len(last.messages)} within an epoch")
            if (request.model, request.thinking, request.head) != (last.model, last.thinking, last.head):
                self._breaks(20, f"{key} changed model, thinking or head within an epoch")
        self._last[key] = (entry_id, request)

    def _reason_fits(self, key: str, story: Story, index: int) -> None:
        """(20) The reason of a new epoch is true."""
        _, epoch, cut = story.epochs[index]
        before = story.epochs[index - 1][1] if index else None
        if cut:
            true = {cut}
        elif before is None:
            true = {"new"}
        else:
            pairs = {
                "model": (before.route.provider, before.route.model) != (epoch.route.provider, epoch.route.model),
                "wire": before.route.wire != epoch.route.wire,
                "thinking": before.route.thinking != epoch.route.thinking,
                "config": before.settings != epoch.settings,
                "tools": before.tools != epoch.tools,
            }
            true = {reason for reason, differs in pairs.items() if differs}
        if epoch.reason not in true:
            self._breaks(20, f"{key} began an epoch because of {epoch.reason!r}; true would be {sorted(true)}")

    # -- what is checked after every step -----------------------------------------------------------------------------

    async def look(self) -> None:
        # The house goes on meanwhile. Who was acknowledged and no longer pending then, must be in what is read now.
        self._looks += 1
        whole = self._looks % WHOLE_EVERY == 0
        letters = [letter for letter in self.letters if letter.acknowledged]
        pending = {job.id for job in await self._queue.open(RUN)}
        for session in await self._sessions.recent(limit=1000):
            await self._read(session.key, session, whole=whole)
        self._nothing_lost([letter for letter in letters if letter.run_id not in pending])
        self._order_kept()
        for key, story in self._stories.items():
            if story.cuts and self._folded.get(key) != len(story.entries):  # else it was looked at before
                self._folded[key] = len(story.entries)
                await self._nothing_left_unsaved(key, story)

    async def _nothing_left_unsaved(self, key: str, story: Story) -> None:
        """(2) What a person said is still read, or in notes, or both."""
        lines = fold(story.entries).lines
        read = {label for line in lines for label in labels(line.message)}
        said = [self.letters[label] for label in story.labels if label not in read]
        looked_for = [letter for letter in said if not letter.saved and letter.exact in letter.text]
        if not looked_for:
            return
        session = await self._sessions.find(self._keys[key])
        made = await self._sessions.extractions(session.id) if session else []
        notes = "\n".join(extraction.notes for extraction in made)
        self._holds_no_secret(f"the notes of {key}", notes)
        for letter in looked_for:
            letter.saved = letter.exact in notes
            if not letter.saved:
                self._breaks(2, f"{letter.exact} of letter {letter.number} is no longer read and in no notes")

    def _nothing_lost(self, ended: list[Letter]) -> None:
        """(1) Every acknowledged message is in its transcript exactly once, or its run is still open."""
        for letter in ended:
            if letter.command == "compact":  # there may have been nothing to do
                continue
            story = self._stories.get(letter.key, Story())
            entry_id = letter.run_id if letter.is_said else f"{letter.run_id}-reset"
            if entry_id not in story.ids:
                self._breaks(1, f"letter {letter.number} was acknowledged and is nowhere")
            elif letter.is_said and not letter.words_kept:
                self._words_kept(letter, story.entries[story.ids[entry_id]])

    def _words_kept(self, letter: Letter, entry: Entry | Broken) -> None:
        letter.words_kept = True  # looked at once: no row is ever rewritten
        words = letter.text.removeprefix("/new ") if letter.command else letter.text
        if words.isprintable() and self._redact(words) not in _words_of(entry):
            self._breaks(1, f"letter {letter.number} was stored with other words: {entry}")

    def _order_kept(self) -> None:
        """(1) What was acknowledged before another message was sent stands before it in the transcript."""
        for key, story in self._stories.items():
            earliest, who = self._moment + 1, -1
            for label in reversed(story.labels):
                letter = self.letters[label]
                if letter.set_aside or letter.key != key:
                    continue
                if earliest < letter.first_sent:
                    self._breaks(1, f"letter {label} stands before letter {who}, which was accepted earlier")
                if letter.acknowledged and letter.acknowledged < earliest:
                    earliest, who = letter.acknowledged, label

    # -- what is checked at the end -----------------------------------------------------------------------------------

    async def at_rest(self) -> None:
        """(10) Every accepted run has its result, and the result is what the transcript says."""
        for session in await self._sessions.recent(limit=1000):
            await self._read(session.key, session, whole=True)
        for job in await self._queue.open(RUN):
            self._breaks(10, f"run {job.id} of {job.idempotency_key} never ended")
        for letter in self.letters:
            kept = await self._queue.find(letter.run_id) if letter.acknowledged else None
            result = result_of(kept) if kept is not None else None
            if result is None or not letter.is_said:
                continue
            self._holds_no_secret(f"the row of run {letter.run_id}", msgspec.json.encode(kept).decode())
            self._answer_is_its_own(letter, result)

    async def all_is_written_down(self) -> None:
        """(16) Whatever a tool answered stands behind a row of the audit log, whose chain is whole. (19) No secrets."""
        report = await self._audit.verify()
        if not report.ok:
            self._breaks(16, f"the audit log does not verify: {report.trouble}")
        rows = await self._audit.rows(limit=1_000_000)
        for row in rows:
            self._holds_no_secret(f"row {row.seq} of the audit log", msgspec.json.encode(row).decode())
        known = {(row.session_key, row.call_id) for row in rows}
        for key, story in self._stories.items():
            for message in story.results():
                if not message.is_error and (key, message.tool_call_id) not in known:
                    self._breaks(16, f"{message.tool_name} of {key} ran, and the audit log does not know")

    def _answer_is_its_own(self, letter: Letter, result: RunResult) -> None:
        story = self._stories.get(letter.key, Story())
        reply = story.answer_to(letter.run_id) if letter.run_id in story.ids else None
        if result.status == "ok" and (reply is None or result.text != _heard(reply)):
            self._breaks(10, f"letter {letter.number} was answered with {result.text!r}, the transcript says {reply}")

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _story(self, key: str) -> Story:
        return await self._read(key, await self._sessions.find(self._keys[key]))

    async def _read(self, key: str, session: Session | None, *, whole: bool = False) -> Story:
        """(1) A transcript only ever grows: all of it is compared if it is asked for, else its last row.

        (19) Nothing secret is in it.
        """
        story = self._stories.setdefault(key, Story())
        known, epochs = len(story.rows), len(story.epochs)
        if session is not None and session.entry_count == known and not whole:
            return story
        start = 0 if whole else max(0, known - 1)
        rows = await self._sessions.rows(session.id, start) if session else []
        known = len(story.rows)  # somebody else may have read it meanwhile
        if rows[: known - start] != story.rows[start:]:
            self._breaks(1, f"the transcript of {key} was rewritten")
        new = rows[known - start :]
        for label in story.read(new):
            self._said[label] += 1
            if self._said[label] > 1:
                self._breaks(1, f"letter {label} was said {self._said[label]} times")
        for entry in story.entries[known:]:
            self._is_bounded(key, entry)
        for row in new:
            self._holds_no_secret(f"row {row.id} of {key}", row.payload)
        for index in range(epochs, len(story.epochs)):
            self._reason_fits(key, story, index)
        return story

    def _is_bounded(self, key: str, entry: Entry | Broken) -> None:
        """(10) Whatever a model says, little of it is kept: about a megabyte, some dozens of calls, no endless nest."""
        message = entry.message if isinstance(entry, MessageEntry) else None
        if not isinstance(message, AssistantMessage):
            return
        if len(message.text) > MOST_TEXT or any(len(repr(call.arguments)) > MOST_TEXT for call in message.calls):
            self._breaks(10, f"a reply of {key} was kept that is longer than {MOST_TEXT:,} characters")
        if len(message.calls) > MOST_CALLS:
            self._breaks(10, f"a reply of {key} was kept with {len(message.calls):,} calls")

    def _holds_no_secret(self, where: str, text: str) -> None:
        """(19) Configured secrets are nowhere, as they are or as JSON writes them."""
        if any(secret in text for secret in self._secrets):
            self._breaks(19, f"{where} holds a secret")

    def _breaks(self, promise: int, how: str) -> None:
        self.broken.append(f"promise {promise}: {how}")


def _sent_under(job: Job) -> str:
    """The idempotency key that the client gave."""
    return str(msgspec.json.decode(job.payload)["idempotency_key"])


def _words_of(entry: Entry | Broken) -> list[str]:
    """What people said in this entry: one message, or several that were heard together."""
    if not isinstance(entry, MessageEntry) or not isinstance(entry.message, UserMessage):
        return []
    return entry.message.text.split("\n\n") if entry.message.also else [entry.message.text]


def _heard(reply: AssistantMessage) -> str:
    return "" if reply.text.strip().upper() == "NO_REPLY" else reply.text
