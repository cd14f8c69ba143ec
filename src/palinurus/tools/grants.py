"""Grants: what a person has allowed permanently.

A grant names one program (where it was found and the real file) and a pattern for each of its arguments. Everything
that a pattern does not name needs approval again. The rules are in `covers`.

`*`, `?` and `[...]` match characters inside one argument, never across two. Because programs act on some arguments
rather than only read them, a wildcard does not match the start of those. A pattern must name it: `-` (a flag, or `--`),
`+` and `@` (options and response files of some programs), `|`, `!`, `<` and `>` (which some read as a command or a file
to open, `|` also at the end), `NAME=` (an assignment), and the start of an absolute path or of a home, also after `=`,
`:`, `@` or `,`. An argument with `..` among its parts is matched only by the same words: `src/*` does not lead out of
src. One that leads through `.git` or `.pal` is matched only by a pattern that names it.

Trust in text from outside is also a grant. It names a source, or one text by its digest, instead of a command:

    host:docs.example.org   host:*.example.org   file:docs/   file:inbox/1.eml   mcp:calendar   skill:pdf   text:DIGEST

Text of other people (`sender:`) and of other programs cannot be trusted by a grant: the config says who may act as the
owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, json, structs

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.events import Invocation
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OutsideText
from palinurus.storage.database import Database
from palinurus.storage.transaction import Transaction, declare_queries, decoded, encoded

declare_queries("grants", __file__)
MAX_COMMAND = 500  # characters of a grant's last command
TOUCH_MS = 60_000  # precision of a grant's last use, for the same command

Patterns: TypeAlias = tuple[str, ...]
REST = "**"  # as the last of several patterns: any further arguments
_ACTS = re.compile(r"[-+@]|\s*[|!<>](?=\s*\S)|[\w.-]+=")
_ROOT = re.compile(r"(?:^|(?<=[=:@,]))[/~]")
_CLASS = re.compile(r"\[!?+\]?+[^\]]*+\]")  # as fnmatch finds its end
EXEC = "exec"
PATH = "/usr/local/bin:/usr/bin:/bin"  # default search path for programs
Scope = Literal["session", "agent", "home"]
TRUST = "trust"  # in place of a tool's name
KINDS = ("host", "file", "mcp", "skill", "text")
FORMS = "a host, a file, a folder that ends with /, mcp:NAME or skill:NAME"
_HOST = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+|\[[0-9a-f:]+\]|localhost")
_URL = re.compile(r"https?://(\[[0-9a-f:]+\]|[^/:?#@\s]+)", re.IGNORECASE)


class _Head(NamedTuple):
    text: str  # the part before the first wildcard
    whole: bool  # whether there is no wildcard


def matches_all(patterns: Patterns, args: Sequence[str]) -> bool:
    """Matches one pattern per argument, in order; a last `**` matches all that are left."""
    if patterns and patterns[-1] == REST:
        own = len(patterns) - 1
        return matches_all(patterns[:own], args[:own]) and all(matches("*", each) for each in args[own:])
    return len(patterns) == len(args) and all(map(matches, patterns, args))


def matches(pattern: str, argument: str) -> bool:
    head = _head(pattern)
    if head.whole:
        return head.text == argument
    return (
        argument.startswith(head.text)
        and fnmatchcase(argument, pattern)
        and ".." not in re.split(r"[/=:@,]", argument)
        and not (_ends_piped(argument) and not _ends_piped(pattern))
        and _ours(argument) <= _ours(pattern)
        and not _begins_unnamed(argument, len(head.text))
    )


def _ours(text: str) -> set[str]:
    """Returns the folders of git and pal in the path: their files are run or restored by other programs."""
    return {".git", ".pal"}.intersection(re.split(r"[/=:@,]", text))


def _ends_piped(text: str) -> bool:
    """Returns whether it ends with a pipe: Perl's open would run it."""
    return text.rstrip().endswith("|") and text.strip() != "|"


def escape(argument: str) -> str:
    """Returns the pattern that matches this argument and no other."""
    return re.sub(r"([*?[])", r"[\1]", argument)


def unescape(pattern: str) -> str:
    """Returns the argument that a literal pattern matches; of another pattern, the part before its first wildcard."""
    return _head(pattern).text


def is_literal(pattern: str) -> bool:
    return _head(pattern).whole


def quote_pattern(pattern: str) -> str:
    """Returns a pattern as `split_rule` reads it, with literal parts quoted where needed."""
    if is_literal(pattern):
        text = unescape(pattern)
        plain = bool(text) and re.fullmatch(r"[^\s'\"\\*?\[]+", text)
        return text if plain else "'" + text.replace("'", "'\"'\"'") + "'"
    return re.sub(r"[\s'\"\\]+", lambda found: '"' + re.sub(r'(["\\])', r"\\\1", found[0]) + '"', pattern)


def split_rule(rule: str) -> Patterns:
    """Returns the words of a rule such as `git diff "*.py" src/*`; quoted or escaped parts are literal. Raises
    BadRequest."""
    words: list[str] = []
    word: str | None = None  # None: between two words
    quote = ""
    chars = iter(rule)
    for char in chars:
        if char == "\\" and quote != "'":
            if (following := next(chars, "")) == "":
                raise BadRequest(f"the rule ends in a backslash: {rule}", hint="write \\\\ for one that is meant")
            word = (word or "") + escape(following)
        elif quote:
            quote, word = ("", word or "") if char == quote else (quote, (word or "") + escape(char))
        elif char in "'\"":
            quote, word = char, word or ""
        elif not char.isspace():
            word = (word or "") + char
        elif word is not None:
            words.append(word)
            word = None
    if quote:
        raise BadRequest(f"a quote is not closed in the rule: {rule}", hint=f"add the missing {quote}")
    return (*words, word) if word is not None else tuple(words)


def rule_arguments(words: Patterns) -> Patterns:
    """Returns the patterns of a rule written by a person: there a last `*` matches all further arguments."""
    return (*words[1:-1], REST) if len(words) > 1 and words[-1] == "*" else words[1:]


def _begins_unnamed(argument: str, named: int) -> bool:
    """Returns whether a part that must be named is matched by wildcards only."""
    acts = _ACTS.match(argument)
    named_less = acts is not None and acts.end() > named
    return named_less or any(found.start() >= named for found in _ROOT.finditer(argument))


@lru_cache(maxsize=4096)
def _head(pattern: str) -> _Head:
    """Splits off the literal start. `[x]` is a literal x; any other bracket expression is a wildcard."""
    text: list[str] = []
    at, last = 0, pattern.rfind("]")
    while at < len(pattern):
        char = pattern[at]
        if char == "[" and at < last and (found := _CLASS.match(pattern, at)):
            if len(inner := found[0][1:-1]) != 1:
                return _Head("".join(text), whole=False)
            text.append(inner)
            at = found.end()
        elif char in "*?":
            return _Head("".join(text), whole=False)
        else:
            text.append(char)
            at += 1
    return _Head("".join(text), whole=True)


class Grant(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A grant. `args` are patterns, one per argument; see `covers` for the rules."""

    id: str
    tool: str  # exec, or the name of another tool
    scope: Scope
    agent: str = ""
    session_key: str = ""
    binary: str = ""
    resolved: str = ""
    args: Patterns = ()
    created_at: int = 0
    expires_at: int | None = None
    created_by: str = ""
    source: Literal["approval", "config", "import"] = "approval"
    revoked_at: int | None = None
    last_used_at: int | None = None
    last_used_command: str = ""


class GrantDraft(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The content of a grant before it is given."""

    tool: str = EXEC
    binary: str = ""
    resolved: str = ""
    args: Patterns = ()


class GrantStore:
    """Stores grants in the home's database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._used: dict[str, tuple[int, str]] = {}  # last written use of each grant: time and command

    async def add(self, grant: Grant) -> None:
        await self._database.write(lambda tx: add_grant(tx, grant))

    async def active(self, *, agent: str, session_key: str, now: int) -> list[Grant]:
        """Returns the grants valid in this session now: neither revoked nor expired."""
        unrevoked = await self._found("grants.unrevoked")
        return [grant for grant in unrevoked if is_in_force(grant, agent=agent, session_key=session_key, now=now)]

    async def all(self) -> list[Grant]:
        """Returns all grants, newest first, including invalid ones."""
        return await self._found("grants.all")

    async def revoke(self, grant_id: str, now: int) -> Grant:
        """Revokes a grant. Raises NotFound."""

        def work(tx: Transaction) -> Grant:
            grant = _grant(tx, grant_id)
            if grant is None:
                raise NotFound(f"there is no grant {grant_id!r}", hint="`pal approvals grants` shows them")
            if grant.revoked_at is None:
                grant = structs.replace(grant, revoked_at=now)
                tx.run("grants.change", **_values(grant))
            return grant

        return await self._database.write(work)

    async def used(self, grant_id: str, now: int, command: str) -> None:
        """Records a use. The same command within a minute is not written again."""
        at, before = self._used.get(grant_id, (0, ""))
        if before == command and 0 <= now - at < TOUCH_MS:
            return
        shown = command if len(command) <= MAX_COMMAND else f"{command[:MAX_COMMAND]}…"

        def work(tx: Transaction) -> None:
            if grant := _grant(tx, grant_id):
                after = structs.replace(grant, last_used_at=now, last_used_command=shown)
                tx.run("grants.change", **_values(after))

        await self._database.write(work)
        self._used[grant_id] = now, command

    async def _found(self, query: str) -> list[Grant]:
        return [_read(row) for (row,) in await self._database.read(lambda tx: tx.all(query))]


def add_grant(tx: Transaction, grant: Grant) -> None:
    if not tx.run("grants.add", created_at=grant.created_at, **_values(grant)):
        raise BadRequest(f"grant {grant.id!r} exists already", hint="it needs another id")


def _grant(tx: Transaction, grant_id: str) -> Grant | None:
    row = tx.value("grants.one", id=grant_id)
    return None if row is None else _read(row)


def _read(row: str) -> Grant:
    return decoded(row, Grant, "the row of a grant")


def _values(grant: Grant) -> dict[str, Any]:
    return {"id": grant.id, "revoked_at": grant.revoked_at, "row": encoded(grant)}


def covers(grant: Grant | GrantDraft, invocation: Invocation) -> bool:
    """Returns whether the grant names this program and all of its arguments, one pattern each.

    A last pattern `**` matches any number of further arguments. A grant for a program that was not found covers
    nothing, because another program may be there later.
    """
    return (
        grant.tool == EXEC
        and bool(grant.binary and grant.resolved)
        and (grant.binary, grant.resolved) == (invocation.binary, invocation.resolved)
        and matches_all(grant.args, invocation.args)
    )


def covers_call(grant: Grant | GrantDraft, tool: str, arguments: Mapping[str, Any]) -> bool:
    """The same for tools other than exec: patterns are `name=value`, sorted, with JSON values.

    `name=*` matches any value. Inside a text `*` matches a part of it; lists and objects are exact or any.
    """
    if tool == EXEC or grant.tool != tool or len(grant.args) != len(arguments):
        return False
    pairs = zip(grant.args, sorted(arguments), strict=True)
    return all(_covers_value(pattern, name, arguments[name]) for pattern, name in pairs)


def is_in_force(grant: Grant, *, agent: str, session_key: str, now: int) -> bool:
    """Returns whether it is valid in this session at this time."""
    if grant.revoked_at is not None or (grant.expires_at is not None and grant.expires_at <= now):
        return False
    if grant.scope == "session":
        return grant.session_key == session_key
    return grant.scope == "home" or grant.agent == agent


def exact_draft(invocation: Invocation) -> GrantDraft:
    """Returns the draft that covers this invocation and no other."""
    return GrantDraft(EXEC, invocation.binary, invocation.resolved, tuple(map(escape, invocation.args)))


def exact_call(tool: str, arguments: Mapping[str, Any]) -> GrantDraft:
    return GrantDraft(tool, args=tuple(escape(_argument(name, arguments[name])) for name in sorted(arguments)))


def rule_text(grant: Grant | GrantDraft) -> str:
    """Returns a grant as a person would write it, such as `git diff src/*.py`."""
    name = grant.binary.rpartition("/")[2] if grant.tool == EXEC else grant.tool
    return " ".join((name, *map(quote_pattern, grant.args)))


def _covers_value(pattern: str, name: str, value: Any) -> bool:
    if is_literal(pattern):
        return unescape(pattern) == _argument(name, value)
    if not pattern.startswith(f"{name}="):
        return False
    if pattern == f"{name}=*":
        return True
    # In JSON a text ends at its last quote, so a `*` between quotes cannot match anything else.
    return isinstance(value, str) and matches(pattern, _argument(name, value))


def _argument(name: str, value: Any) -> str:
    return f"{name}={json.encode(value, order='sorted').decode()}"


class GrantedTrust(Struct, frozen=True):
    """Implements domain.provenance.Trust."""

    sources: frozenset[str]

    def covers(self, text: OutsideText) -> bool:
        return bool(self.sources) and not self.sources.isdisjoint(_names(text))


def granted_trust(grants: Iterable[Grant]) -> GrantedTrust:
    named = (source for grant in grants if grant.tool == TRUST for source in grant.args)
    return GrantedTrust(frozenset(filter(is_trustable, named)))


async def trust_in(grants: GrantStore, key: SessionKey, now: int) -> GrantedTrust:
    """Returns what is trusted in a session now."""
    return granted_trust(await grants.active(agent=key.agent, session_key=str(key), now=now))


def is_trustable(source: str) -> bool:
    kind, _, name = source.partition(":")
    return kind in KINDS and bool(name)


def trust_draft(source: str) -> GrantDraft:
    return GrantDraft(TRUST, args=(source,))


def read_source(word: str, known: Sequence[OutsideText] = ()) -> str:
    """Returns the source that this word names, given the texts in the session. Raises BadRequest."""
    for text in known:
        if word and is_trustable(text.source) and word in (text.source, text.source.partition(":")[2]):
            return text.source
    if is_trustable(word):
        return word
    if url := _URL.match(word):
        return f"host:{url[1].lower()}"
    if "/" in word and not word.startswith(("/", "~", "../")):
        return f"file:{word.removeprefix('./')}"
    if _HOST.fullmatch(word.lower()):
        return f"host:{word.lower()}"
    raise BadRequest(f"{word!r} cannot be trusted", hint=f"name {FORMS}")


def _names(text: OutsideText) -> Iterator[str]:
    """Returns all grants that would cover it: the text, its source, and the folders and domains of the source."""
    if text.digest:
        yield f"text:{text.digest}"
    yield text.source
    kind, _, name = text.source.partition(":")
    if kind == "host":
        labels = name.split(".")
        yield from (f"host:*.{'.'.join(labels[at:])}" for at in range(len(labels)))
    elif kind == "file":
        parts = name.split("/")
        yield from (f"file:{'/'.join(parts[:at])}/" for at in range(1, len(parts)))
