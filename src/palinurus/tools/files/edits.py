"""The hands that change files: write, edit and delete.

All look first where the file really lies and whether it may be written, then change it whole or not at all. Of a
person's markdown, and of every file that is deleted, a copy is kept: see workspace/backups.py. What later conversations
begin with (AGENTS.md, skills) is not changed in a turn that has read text from outside unless a person agrees: who
writes there speaks for the owner.
"""

from __future__ import annotations

import asyncio
import hashlib
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound, WorkspaceError
from palinurus.domain.function_tool import prepared_tool
from palinurus.domain.plan import Plan
from palinurus.domain.tool import Prepared, Tool, ToolOutput, ToolRun
from palinurus.tools.files.ledger import FileLedger, Saved, is_note, mark_new_lines
from palinurus.tools.files.reach import Reach, Reaching, reaching, writing
from palinurus.tools.files.replace import Edit, apply_edits, decode, difference, encode
from palinurus.workspace.backups import is_owned, keep_backup, loses
from palinurus.workspace.files import WorkspaceFiles, is_private
from palinurus.workspace.steps import Guard
from palinurus.workspace.write import NEW_FILE, Change, delete_file, rewrite, whereabouts

MAX_PLANNED = 2_000  # characters of a text that a person is shown; the digest beside them covers all

# What models call these arguments elsewhere, and what conversations from OpenClaw are full of.
_ALSO_CALLED = {
    "file_path": "path", "oldText": "old", "newText": "new", "old_string": "old", "new_string": "new",
    "replace_all": "all",
}  # fmt: skip


def edit_tools(files: WorkspaceFiles | Reaching, clock: Clock) -> tuple[Tool, ...]:
    reach = reaching(files)

    @prepared_tool("write", "Write a whole file of the workspace: a new one, or over an old one.")
    async def write(
        run: ToolRun, path: Annotated[str, "relative to the workspace"], content: str
    ) -> Prepared | ToolOutput:
        pen = await asyncio.to_thread(lambda: Pen(run, reach(run.key), clock, (path,)))
        data = encode("content", content)
        plan = Plan("write", f"write {pen.places[0]}: {size(data)}", arguments=shown(pen.places[0], content))
        return pen.prepared(plan, lambda: ToolOutput(_wrote(pen.write(path, lambda *_: data, whole=True))))

    @prepared_tool("edit", "Replace exact text in a file. Give old and new, or several in edits: all are done or none.")
    async def edit(
        run: ToolRun,
        path: Annotated[str, "relative to the workspace"],
        old: Annotated[str, "must be in the file once"] = "",
        new: str = "",
        all: Annotated[bool, "replace it everywhere"] = False,  # noqa: A002 — the model's word for it
        edits: tuple[Edit, ...] = (),
    ) -> Prepared | ToolOutput:
        if bool(old) == bool(edits):
            raise BadRequest("edit needs either old and new, or edits", hint='for example edits=[{"old": …, "new": …}]')
        changes = edits or (Edit(old, new, all),)
        for each in changes:
            encode("old", each.old), encode("new", each.new)
        pen = await asyncio.to_thread(lambda: Pen(run, reach(run.key), clock, (path,)))
        about = shown(pen.places[0], msgspec.json.encode(changes).decode())
        plan = Plan("edit", f"edit {pen.places[0]}: {_counted(len(changes), 'replacement')}", arguments=about)
        work = _editing(path, changes)
        return pen.prepared(plan, lambda: ToolOutput(_edited(pen.write(path, work, create=False))), shows=True)

    @prepared_tool("delete", "Delete a file. A copy is kept in .pal/backups.")
    async def delete(run: ToolRun, path: Annotated[str, "relative to the workspace"]) -> Prepared | ToolOutput:
        pen = await asyncio.to_thread(lambda: Pen(run, reach(run.key), clock, (path,)))
        before = await asyncio.to_thread(lambda: pen.read(path))
        if before is None:
            raise NotFound(f"there is no file {path} in the workspace", hint="list the directory to see what is there")
        about = {"path": pen.places[0], "sha256": hashlib.sha256(before).hexdigest()}
        plan = Plan("delete", f"delete {pen.places[0]}: {size(before)}", arguments=about)
        return pen.prepared(plan, lambda: ToolOutput(_deleted(pen.delete(path, before, keep=True))))

    return tuple(also_called(each, _ALSO_CALLED) for each in (write, edit, delete))


class Pen:
    """May write these files, in this run. Making one does nothing yet and raises what forbids it."""

    def __init__(self, run: ToolRun, reach: Reach, clock: Clock, paths: tuple[str, ...]) -> None:
        self._run = run
        self._reach = reach
        self._boundary = reach.files.boundary
        self._clock = clock
        for path in paths:
            writing(run, reach, path)(path)
        self.places = tuple(whereabouts(self._boundary, path) for path in paths)
        for path, place in zip(paths, self.places, strict=True):
            writing(run, reach, path)(place)
            self._check_links(path)
        self._begins = reach.instructions.followed(self._boundary.root)
        self._instructions = tuple(place for place in self.places if self._begins.hold(place))
        self._ledger = FileLedger(run, reach.files, clock, self._begins)

    def prepared(
        self, plan: Plan, work: Callable[[], ToolOutput], moves: Mapping[str, str] = {}, *, shows: bool = False
    ) -> Prepared:
        """`moves`: places by those that they move to; `shows`: the result tells what is in the files."""
        why = f"{self._instructions[0]} is read at the beginning of later conversations" if self._instructions else ""
        go = partial(self._ledger.around, work, self.places, moves, shows=shows)
        return Prepared(plan, go, when_untrusted=why)

    def _check_links(self, path: str) -> None:
        """A difference and a backup would tell what is in the file that is replaced."""
        seen = None
        with suppress(NotFound), self._boundary.steps(path) as place:
            seen = place.stat
        if seen is not None and stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
            with self._boundary.open_file(path):
                pass

    def read(self, path: str) -> bytes | None:
        """What is in a file that may be written; None when there is none."""
        try:
            with self._boundary.open_file(path) as file:
                self._guard(path)(file.path)
                return file.read()
        except NotFound:
            return None

    def write(self, path: str, change: Change, *, create: bool = True, whole: bool = False) -> Saved:
        backup, marked = "", False

        def keeping(place: str, before: bytes | None) -> bytes:
            nonlocal backup, marked
            after = change(place, before)
            if self._run.untrusted and is_note(place):
                after, marked = mark_new_lines(before, after), True
            backup = self._keep(place, before, after)
            return after

        mode = 0o600 if any(map(is_private, self.places)) else NEW_FILE
        written = rewrite(self._boundary, path, keeping, create=create, mode=mode, guard=self._guard(path))
        return self._ledger.note(Saved(written, backup, whole or written.before is None, marked))

    def delete(self, path: str, expected: bytes, *, keep: bool = False) -> Saved:
        """`keep`: a copy of any file, not only of a person's markdown."""
        backup = ""

        def check(place: str, before: bytes) -> None:
            nonlocal backup
            unchanged(path, before, expected)
            backup = self._keep(place, before, None, keep)

        gone = delete_file(self._boundary, path, check, guard=self._guard(path))
        return self._ledger.note(Saved(gone, backup))

    def _keep(self, place: str, before: bytes | None, after: bytes | None, always: bool = False) -> str:
        if before is None or not (always or is_owned(place)) or not loses(before, after):
            return ""
        return keep_backup(self._boundary, place, before, self._clock.now_ms())

    def _guard(self, path: str) -> Guard:
        """What was judged is what is written: a link put in the way since then leads to nothing that needed a word."""
        may_write = writing(self._run, self._reach, path)

        def guard(place: str) -> None:
            may_write(place)
            if self._run.untrusted and self._begins.hold(place) and place not in self._instructions:
                raise WorkspaceError(f"{path} was replaced while it was being opened", hint="try again")

        return guard


def unchanged(path: str, before: bytes | None, expected: bytes | None) -> None:
    if before != expected:
        raise WorkspaceError(f"{path} was changed by somebody else meanwhile", hint="read it again, then try again")


def also_called(tool: Tool, names: Mapping[str, str]) -> Tool:
    """The tool, which also understands its arguments by other names. The schema does not tell of them."""
    prepare = tool.prepare

    def told(sent: Mapping[str, Any]) -> dict[str, Any]:
        said = {_own_name(name, names, sent): value for name, value in sent.items()}
        edits = _unquoted(said.get("edits"))
        if isinstance(edits, list):
            said["edits"] = [told(each) if isinstance(each, dict) else each for each in edits]
        return said

    return msgspec.structs.replace(
        tool,
        run=lambda run, sent: tool.run(run, told(sent)),
        prepare=prepare and (lambda run, sent: prepare(run, told(sent))),
    )


def _unquoted(value: Any) -> Any:
    """Small models send a list as the text of one."""
    if not isinstance(value, str):
        return value
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(value)
    return value


def _own_name(name: str, names: Mapping[str, str], sent: Mapping[str, Any]) -> str:
    own = names.get(name, name)
    return name if own in sent else own


def _editing(path: str, edits: tuple[Edit, ...]) -> Change:
    def change(_: str, before: bytes | None) -> bytes:
        return apply_edits(path, decode(path, before or b""), edits).encode()

    return change


def shown(place: str, text: str) -> dict[str, Any]:
    """What the plan tells of a text: enough to judge it, what is left out of it, and a digest that covers it whole."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    left_out = {"notShown": f"the last {len(text) - MAX_PLANNED:,} characters"} if len(text) > MAX_PLANNED else {}
    return {"path": place, "text": text[:MAX_PLANNED], "sha256": digest, **left_out}


def _wrote(saved: Saved) -> str:
    done, after = saved.written, size(saved.written.after)
    if done.before is None:
        return f"created {done.path}: {after}"
    if done.before == done.after:
        return f"{done.path} already holds exactly that: {after}"
    return f"replaced {done.path}: {after}, before {size(done.before)}{saved.remarks}"


def _deleted(saved: Saved) -> str:
    return f"deleted {saved.written.path}: {size(saved.written.before)}{saved.remarks}"


def _edited(saved: Saved) -> str:
    before, after = ((data or b"").decode() for data in (saved.written.before, saved.written.after))
    return f"edited {saved.written.path}{saved.remarks}\n{difference(before, after)}"


def size(data: bytes | None) -> str:
    data = data or b""
    lines = data.count(b"\n") + (not data.endswith(b"\n") if data else 0)
    return f"{_counted(lines, 'line')}, {_counted(len(data), 'byte')}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
