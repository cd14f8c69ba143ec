"""What the keys of the input line do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from palinurus.cli.terminal.spans import Line

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


class Sender(Protocol):
    def submit(self, text: str) -> None: ...

    def stop(self) -> bool:
        """Stop what runs; whether anything did."""


class Surface(Protocol):
    def print(self, lines: Sequence[Line], *, margin: bool = True) -> None: ...

    def leave(self) -> None: ...


def input_keys(surface: Surface, sender: Sender, buffer: Buffer) -> KeyBindings:
    """Our keys, which go before the usual ones of a command line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(_: KeyPressEvent) -> None:
        _enter(sender, buffer)

    @keys.add("escape", "enter")
    def _(_: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(_: KeyPressEvent) -> None:
        _interrupt(surface, sender, buffer)

    @keys.add("escape", "escape")
    def _(_: KeyPressEvent) -> None:
        sender.stop()

    @keys.add("c-d")
    def _(_: KeyPressEvent) -> None:
        if buffer.text:
            buffer.delete()
        else:
            surface.leave()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def _enter(sender: Sender, buffer: Buffer) -> None:
    if buffer.complete_state and buffer.complete_state.current_completion:
        buffer.complete_state = None  # the choice is made; what it became may be typed on
    elif buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    elif buffer.text.strip():
        text = buffer.text
        buffer.reset(append_to_history=True)
        sender.submit(text)


def _interrupt(surface: Surface, sender: Sender, buffer: Buffer) -> None:
    """Ctrl-C stops the run and not the program; without a run it empties the line."""
    if sender.stop():
        return
    if buffer.text:
        buffer.reset()
    else:
        surface.print([[("dim", "(Ctrl-D leaves)")]])
