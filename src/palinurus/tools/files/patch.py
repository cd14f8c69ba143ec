"""The hand that applies a patch to several files. Offered only where the config enables it.

All of it is worked out in memory before the first file is touched. Then the files are written one by one, each whole,
what is to go last of all; if one of them fails, the result says exactly which were done.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.domain.function_tool import failed, prepared_tool
from palinurus.domain.plan import Plan
from palinurus.domain.tool import Prepared, Tool, ToolOutput, ToolRun
from palinurus.tools.files.edits import Pen, also_called, shown, unchanged
from palinurus.tools.files.patchtext import Section, apply_hunks, parse_patch
from palinurus.tools.files.reach import Reaching, reaching
from palinurus.tools.files.replace import decode, encode
from palinurus.workspace.files import WorkspaceFiles

_ABOUT = (
    "Change several files at once, all or none. The patch is lines: '*** Begin Patch', then for each file "
    "'*** Add File: path' with lines +…, or '*** Delete File: path', or '*** Update File: path' (then maybe "
    "'*** Move to: path') with hunks: '@@' or '@@ a line before', then lines that begin with ' ' (stays), '-' or '+'; "
    "at last '*** End Patch'."
)


def patch_tool(files: WorkspaceFiles | Reaching, clock: Clock) -> Tool:
    reach = reaching(files)

    @prepared_tool("apply_patch", _ABOUT)
    async def apply_patch(run: ToolRun, input: Annotated[str, "the patch"]) -> Prepared | ToolOutput:  # noqa: A002
        sections = parse_patch(input)
        pen = await asyncio.to_thread(lambda: Pen(run, reach(run.key), clock, _paths(sections)))
        plan = Plan("apply_patch", f"patch {', '.join(pen.places)}", arguments=shown(", ".join(pen.places), input))
        places = dict(zip(_paths(sections), pen.places, strict=True))
        moves = {places[each.move_to]: places[each.path] for each in sections if each.move_to}
        return pen.prepared(plan, lambda: _commit(pen, _staged(pen, sections)), moves, shows=True)

    return also_called(apply_patch, {"patch": "input"})


class Staged(Struct):
    """One file as it was read and as it will be; None: it is not there."""

    path: str
    before: bytes | None
    after: bytes | None


def _paths(sections: tuple[Section, ...]) -> tuple[str, ...]:
    return tuple(path for section in sections for path in (section.path, section.move_to) if path)


class _Stage:
    """The files of a patch by where they really lie, so that two names of one file are one."""

    def __init__(self, pen: Pen, places: dict[str, str]) -> None:
        self._pen = pen
        self._places = places
        self.files: dict[str, Staged] = {}

    def take(self, path: str) -> Staged:
        place = self._places[path]
        if place not in self.files:
            before = self._pen.read(path)
            self.files[place] = Staged(path, before, before)
        return self.files[place]

    def add(self, path: str, data: bytes) -> None:
        staged = self.take(path)
        if staged.after is not None:
            raise BadRequest(f"{path} is there already", hint="use '*** Update File: ', or another name")
        staged.after = data

    def lift(self, path: str) -> tuple[Staged, bytes]:
        staged = self.take(path)
        if staged.after is None:
            raise NotFound(f"there is no file {path} in the workspace", hint="list the directory to see what is there")
        return staged, staged.after


def _staged(pen: Pen, sections: tuple[Section, ...]) -> list[Staged]:
    stage = _Stage(pen, dict(zip(_paths(sections), pen.places, strict=True)))
    for section in sections:
        match section.kind:
            case "Add":
                stage.add(section.path, encode(section.path, section.content))
            case "Delete":
                staged, _ = stage.lift(section.path)
                staged.after = None
            case "Update":
                staged, data = stage.lift(section.path)
                text = apply_hunks(section.path, decode(section.path, data), section.hunks)
                staged.after = encode(section.path, text)
                if section.move_to:
                    stage.add(section.move_to, staged.after)
                    staged.after = None
    changed = [each for each in stage.files.values() if each.before != each.after]
    return sorted(changed, key=lambda each: each.after is None)


def _commit(pen: Pen, files: list[Staged]) -> ToolOutput:
    done: list[str] = []
    for number, staged in enumerate(files):
        try:
            done.append(_put(pen, staged))
        except PalinurusError as error:
            missing = ", ".join(each.path for each in files[number + 1 :])
            rest = f"\nnot tried: {missing}" if missing else ""
            return failed("\n".join([f"{staged.path} failed: {error}", *(done or ["nothing was changed"])]) + rest)
    return ToolOutput("\n".join(done) or "every file already holds exactly that")


def _put(pen: Pen, staged: Staged) -> str:
    if staged.after is None:
        gone = pen.delete(staged.path, staged.before or b"")
        return f"deleted {gone.written.path}{gone.remarks}"
    after = staged.after

    def change(_: str, before: bytes | None) -> bytes:
        unchanged(staged.path, before, staged.before)
        return after

    saved = pen.write(staged.path, change)
    return f"{'created' if staged.before is None else 'updated'} {saved.written.path}{saved.remarks}"
