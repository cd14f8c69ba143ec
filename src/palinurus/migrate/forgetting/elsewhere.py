"""What a forgetting does not reach, and names: the history of workspaces, and backups. Everything here blocks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

from palinurus.domain.errors import WorkspaceError
from palinurus.migrate.backup.register import Backups, Known
from palinurus.migrate.forgetting.report import Spot
from palinurus.migrate.forgetting.words import Words
from palinurus.workspace.git import Git, find_git, unfit

MOST_COMMITS = 200
MOST_TEXTS = 20


def in_histories(workspaces: Mapping[str, Path], words: Words) -> list[Spot]:
    """Workspaces whose git history holds the words."""
    return [spot for agent, root in workspaces.items() if (spot := _in_history(agent, root, words)) is not None]


def in_backups(backups: Backups, since: int) -> list[Known]:
    """Those that were made when the words were there; `since` 0: nobody knows from when on they were."""
    return [known for known in backups.all() if known.created_at >= since]


def backup_spots(known: Iterable[Known]) -> list[Spot]:
    return [Spot(f"backup {each.id[:8]}, {each.path}", "stays", 1, _why(each)) for each in known]


def _why(known: Known) -> str:
    if known.gone:
        return "made when the words were there, and not where it was put"
    return "made when the words were there; a backup is never changed. Make a new one and remove this one"


def _in_history(agent: str, root: Path, words: Words) -> Spot | None:
    program = find_git()
    if not words or not (root / ".git").is_dir() or unfit(root, program):
        return None
    where = f"git history of the workspace of {agent}, {root}"
    forms = dict.fromkeys(form for text in words.texts[:MOST_TEXTS] for form in _forms(text))
    pattern = "|".join("[[:space:]]+".join(map(_escaped, form.split())) for form in forms)
    search = ("-i", "--extended-regexp", "--pickaxe-regex", "-S", pattern)
    try:
        found = Git(root, program).run("log", "--all", f"--max-count={MOST_COMMITS}", "--format=%h", *search)
    except WorkspaceError as error:
        return Spot(where, "stays", 0, f"it could not be looked through: {error.message}")
    commits = found.text.split()
    if not commits:
        return None
    return Spot(where, "stays", len(commits), f"history is not rewritten; commits {', '.join(commits[:5])}")


def _forms(text: str) -> list[str]:
    """Git knows small letters from large ones, and nothing else of Unicode."""
    return [text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC"))]


def _escaped(word: str) -> str:
    return re.sub(r"([][.^$*+?(){}|\\])", r"\\\1", word)
