"""Files that count as text from outside by their kind: mail, saved pages, and what lies in folders such as inbox."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


class UntrustedPaths:
    """Patterns as the config has them: `*.eml` is a file's name, `inbox/` a folder at any depth, `docs/mail/*` a path.

    Case is ignored.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(dict.fromkeys(pattern.strip().casefold().removeprefix("./") for pattern in patterns))
        plain = [each for each in self.patterns if each.strip("/")]
        self._folders = frozenset(each[:-1] for each in plain if each.endswith("/") and "/" not in each[:-1])
        self._paths = tuple(each for each in plain if "/" in each[:-1])
        self._endings = tuple(each[1:] for each in plain if each.startswith("*.") and not set(each[1:]) & set("*?[/"))
        self._names = tuple(
            each for each in plain if "/" not in each and each not in {f"*{end}" for end in self._endings}
        )

    def has(self, place: str) -> bool:
        """Whether a file at this path from the root of a workspace is such a one."""
        path = place.casefold()
        above, _, name = path.rpartition("/")
        if name.endswith(self._endings) or self.has_folder(above) or self._fits(path):
            return True
        return any(fnmatchcase(name, each) for each in self._names)

    def has_folder(self, place: str) -> bool:
        """Whether all that lies below this folder is, its names included: they are others' words too."""
        path = place.casefold()
        return bool(path) and (not self._folders.isdisjoint(path.split("/")) or self._fits(f"{path}/"))

    def _fits(self, path: str) -> bool:
        return any(path.startswith(each) if each.endswith("/") else fnmatchcase(path, each) for each in self._paths)
