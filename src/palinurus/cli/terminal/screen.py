"""The terminal: an input line at the bottom, a status line below it, and everything said above, where it scrolls away.

What is complete is printed once and belongs to the terminal from then on; only the lines that are still being written
are drawn again. Both happen in one go, between marks that let a terminal show the change as a whole.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from palinurus.cli.terminal.spans import Line

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.layout import Layout
    from prompt_toolkit.output import Output


def input_keys(screen: Screen, owner: Owner, buffer: Buffer) -> KeyBindings:
    """Our keys, which go before the usual ones of a command line."""
    from prompt_toolkit.application import get_app
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def bind(work: Callable[[], object], *pressed: str) -> None:
        @keys.add(*pressed)
        def _(_: KeyPressEvent) -> None:
            work()

    bind(lambda: _enter(owner, buffer), "enter")
    bind(lambda: buffer.insert_text("\n"), "escape", "enter")
    bind(lambda: _interrupt(screen, owner, buffer), "c-c")
    bind(lambda: _interrupt(screen, owner, buffer), "<sigint>")
    bind(owner.stop, "escape", "escape")
    bind(lambda: buffer.delete() if buffer.text else screen.leave(), "c-d")
    bind(lambda: get_app().suspend_to_background(), "c-z")
    return keys


def _enter(owner: Owner, buffer: Buffer) -> None:
    if buffer.complete_state and buffer.complete_state.current_completion:
        buffer.complete_state = None  # the choice is made; what it became may be typed on
    elif buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    elif buffer.text.strip():
        text = buffer.text
        buffer.reset(append_to_history=True)
        owner.submit(text)


def _interrupt(screen: Screen, owner: Owner, buffer: Buffer) -> None:
    """Ctrl-C stops the run and not the program; without a run it empties the line."""
    if owner.stop():
        return
    if buffer.text:
        buffer.reset()
    else:
        screen.print([[("dim", "(Ctrl-D leaves)")]])


MARGIN = "  "

FRAME_SECONDS = 0.03

AROUND = 8  # rows that are not for the open lines: input, status, and a little of what was said

INPUT_ROWS = 10

MENU_ROWS = 8

TOGETHER, SHOWN = "\x1b[?2026h", "\x1b[?2026l"  # synchronised output: terminals that do not know it ignore it

# Names of colours only, so that the terminal's own theme decides what they look like.
STYLE = {
    "strong": "bold",
    "em": "italic",
    "struck": "strike",
    "code": "ansicyan",
    "listing": "ansicyan",
    "link": "underline",
    "heading": "bold underline",
    "bullet": "dim",
    "quote": "italic",
    "dim": "dim",
    "thinking": "dim italic",
    "tool": "dim bold",
    "failed": "ansired",
    "notice": "ansiyellow",
    "ask": "ansimagenta bold",
    "you": "bold",
    "mark": "ansigreen bold",
    "status": "dim",
    "busy": "nodim ansigreen",
    "completion-menu": "noreverse bg:default",
    "completion-menu.completion": "bg:default",
    "completion-menu.completion.current": "reverse",
    "completion-menu.meta.completion": "dim bg:default",
    "completion-menu.meta.completion.current": "dim reverse",
    "scrollbar.background": "bg:default",
    "scrollbar.button": "reverse",
}


class Owner(Protocol):
    """Who is shown on the screen and takes its input. Called on the event loop; must not raise."""

    def submit(self, text: str) -> None: ...

    def stop(self) -> bool:
        """Stop what runs; whether anything did."""

    def live(self, width: int) -> Sequence[Line]:
        """The lines that are still being written."""

    def status(self, width: int) -> Line: ...


class Screen:
    def __init__(self, *, color: bool) -> None:
        from prompt_toolkit.output.vt100 import Vt100_Output
        from prompt_toolkit.styles import Style

        # The position of the cursor is never asked for: the answer would come in between what is typed.
        term = os.environ.get("TERM")
        self._output: Output = Vt100_Output(sys.stdout, _size, term=term, enable_cpr=False)
        self._style = Style.from_dict(STYLE if color else {})
        self._app: Application[None] | None = None
        self._pending: list[Line] = []
        self._frame: asyncio.TimerHandle | None = None
        self._together = False

    @property
    def width(self) -> int:
        """Columns for what is said."""
        return max(20, self._output.get_size().columns - 2 * len(MARGIN))

    def print(self, lines: Sequence[Line], *, margin: bool = True) -> None:
        """Put finished lines above the input, for good."""
        self._pending += [[("", MARGIN), *line] if margin and line else list(line) for line in lines]
        if self._app is None:
            self._write()
        else:
            self.refresh()

    def refresh(self) -> None:
        """Draw anew, soon: many changes make one drawing."""
        if self._frame is None and self._app is not None:
            self._frame = asyncio.get_running_loop().call_later(FRAME_SECONDS, self._draw)

    def restore(self, text: str) -> None:
        """Give back what was typed and could not be sent."""
        if self._app is not None and not self._app.current_buffer.text:
            self._app.current_buffer.insert_text(text)

    def leave(self) -> None:
        if self._app is not None and self._app.is_running:
            self._app.exit()

    async def run(self, owner: Owner, history: History, completer: Completer) -> None:
        """Until somebody leaves."""
        from prompt_toolkit.application import Application
        from prompt_toolkit.buffer import Buffer

        buffer = Buffer(history=history, completer=completer, complete_while_typing=True, multiline=True)
        self._app = Application(
            layout=self._layout(owner, buffer),
            key_bindings=input_keys(self, owner, buffer),
            style=self._style,
            output=self._output,
            erase_when_done=True,
            after_render=lambda _: self._drawn(),
        )
        try:
            with suppress(EOFError):  # the terminal was taken away: as good as leaving
                await self._app.run_async(set_exception_handler=False)
        finally:
            if self._frame is not None:
                self._frame.cancel()
            self._app = None
            self._write()

    def _layout(self, owner: Owner, buffer: Buffer) -> Layout:
        from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, VerticalAlign, Window
        from prompt_toolkit.layout.dimension import Dimension
        from prompt_toolkit.layout.menus import CompletionsMenu

        def live() -> StyleAndTextTuples:
            rows = max(3, self._output.get_size().rows - AROUND)
            lines = [[("", MARGIN), *line] for line in owner.live(self.width)]
            return _joined([*lines[-rows:], []] if lines else [])  # a blank line above the input, always

        def prefix(number: int, wrapped: int) -> StyleAndTextTuples:
            return [("class:mark", "› ")] if number == 0 and wrapped == 0 else [("", "  ")]

        said = Window(FormattedTextControl(live), wrap_lines=True, dont_extend_height=True)
        gap = Window(char="─", height=1, style="class:dim")
        typed = Window(
            BufferControl(buffer),
            wrap_lines=True,
            get_line_prefix=prefix,
            height=Dimension(min=1, max=INPUT_ROWS),
            dont_extend_height=True,
        )
        status = Window(FormattedTextControl(lambda: _classes([("", MARGIN), *owner.status(self.width)])), height=1)
        menu = CompletionsMenu(max_height=MENU_ROWS, scroll_offset=1)
        return Layout(HSplit([said, gap, typed, menu, status], align=VerticalAlign.TOP), focused_element=typed)

    def _draw(self) -> None:
        self._frame = None
        app = self._app
        if app is None or not app.is_running:
            return
        if self._pending:
            self._output.write_raw(TOGETHER)
            app.renderer.erase()
            self._write()
            self._together = True
        app.invalidate()

    def _drawn(self) -> None:
        if self._together:
            self._together = False
            self._output.write_raw(SHOWN)
            self._output.flush()

    def _write(self) -> None:
        from prompt_toolkit.renderer import print_formatted_text

        if self._pending:
            lines, self._pending = self._pending, []
            print_formatted_text(self._output, [*_joined(lines), ("", "\n")], self._style)
            self._output.flush()


def _size() -> Size:
    from prompt_toolkit.data_structures import Size

    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:  # the terminal is being taken away
        columns, rows = 80, 24
    return Size(rows=rows or 24, columns=columns or 80)


def _classes(line: Line) -> StyleAndTextTuples:
    return [(" ".join(f"class:{name}" for name in style.split()), text) for style, text in line]


def _joined(lines: Sequence[Line]) -> StyleAndTextTuples:
    fragments: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        fragments += [*([("", "\n")] if number else []), *_classes(line)]
    return fragments
