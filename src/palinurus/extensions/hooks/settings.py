"""Which hooks are on, and where more are looked for."""

from typing import Annotated, ClassVar

from palinurus.config.section import Secret, Section, option

_FILES = "bootstrap-extra-files: files of the workspace that are added to the prompt; * and ** are patterns."


class HookEntry(Section, frozen=True):
    """One hook, by its name or its hookKey."""

    free: ClassVar = True

    enabled: Annotated[
        bool | None,
        option("Whether it is on. Unset: bundled hooks are off, those of the home and of extraDirs are on."),
    ] = None
    env: Annotated[dict[str, Secret], option("Variables that its handler finds in event.env.")] = {}
    paths: Annotated[tuple[str, ...], option(_FILES)] = ()
    patterns: Annotated[tuple[str, ...], option("The same as paths.")] = ()
    files: Annotated[tuple[str, ...], option("The same as paths.")] = ()
    messages: Annotated[int, option("session-memory: how many messages are saved.", ge=1, le=200)] = 15


class InternalHookSettings(Section, frozen=True):
    """Hooks: functions that are called when something happens."""

    foreign: ClassVar = {"": "handlers installs"}

    enabled: Annotated[bool, option("Whether bundled hooks and those from folders are called at all.")] = True
    extra_dirs: Annotated[tuple[str, ...], option("More folders with hooks.", "load.extraDirs")] = ()
    entries: Annotated[dict[str, HookEntry], option("Single hooks, by name.")] = {}
