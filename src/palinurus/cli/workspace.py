"""`pal workspace`: what changed in an agent's files, and an old version put back."""

from __future__ import annotations

from datetime import datetime

import click

from palinurus.cli.entrance import open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.clock import random_id
from palinurus.operations.table import Operation, P, R
from palinurus.operations.workspace import (
    COMMIT,
    DIFF,
    LOG,
    RESTORE,
    AskDiff,
    AskLog,
    CommitFiles,
    CommittedFiles,
    RestoredFile,
    RestoreFile,
    WorkspaceLog,
)
from palinurus.workspace.history import Commit

_agent = click.option("--agent", "agent_id", default="", help="Whose workspace; the default agent's without it.")


@click.group()
def workspace() -> None:
    """Show what changed in an agent's files, and put old versions back.

    A new workspace is a git repository, and runs that changed files end with a commit. agents.defaults.workspaceHistory
    says whether; one that you made yourself is used as it is, and nothing in it is ever rewritten.
    """


@workspace.command("log")
@click.argument("path", default="")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@_agent
@with_json
@click.pass_obj
def show_log(shell: Shell, path: str, limit: int, agent_id: str) -> int:
    """List what was changed, the newest first; with PATH, of this file only.

    \b
    Examples:
      pal workspace log
      pal workspace log SOUL.md --limit 5
    """
    log = _ask(shell, LOG, AskLog(agent_id, path, limit))
    shell.show(log, lambda: _log_text(shell, log))
    return 0 if log.git else 1


@workspace.command("diff")
@click.argument("commit", default="")
@click.option("--path", default="", help="Of this file only.")
@click.option("--now", is_flag=True, help="From that commit to the files as they are.")
@_agent
@with_json
@click.pass_obj
def show_diff(shell: Shell, commit: str, path: str, now: bool, agent_id: str) -> None:
    """Show what a commit changed; without COMMIT, what is in none yet.

    \b
    Examples:
      pal workspace diff 3f2a9c1
      pal workspace diff 3f2a9c1 --now --path SOUL.md
    """
    asked = AskDiff(agent_id, commit, path, "now" if now else "parent")
    diff = _ask(shell, DIFF, asked)
    shell.show(diff, lambda: _diff_text(shell, diff.text) + ("\n(cut off here)" if diff.truncated else ""))


@workspace.command("restore")
@click.argument("path")
@click.argument("commit")
@_agent
@with_json
@click.pass_obj
def restore(shell: Shell, path: str, commit: str, agent_id: str) -> None:
    """Put PATH back as it was at COMMIT. A copy of what it holds now is kept.

    \b
    Example:
      pal workspace restore SOUL.md 3f2a9c1
    """
    done = _ask(shell, RESTORE, RestoreFile(path, commit, agent_id, idempotency_key=random_id()))
    shell.show(done, lambda: _restored_text(done))


@workspace.command("commit")
@click.option("--message", "-m", default="", help="What it is about; without it the files are named.")
@_agent
@with_json
@click.pass_obj
def keep(shell: Shell, message: str, agent_id: str) -> None:
    """Keep the files as they are now as a point of the history.

    \b
    Example:
      pal workspace commit -m "Before the big tidy-up"
    """
    done = _ask(shell, COMMIT, CommitFiles(agent_id, message, random_id()))
    shell.show(done, lambda: _committed_text(shell, done))


def _ask(shell: Shell, operation: Operation[P, R], params: P) -> R:
    async def ask() -> R:
        async with open_door(shell) as door:
            return await door.call(operation, params)

    return run_async(ask())


def _log_text(shell: Shell, log: WorkspaceLog) -> str:
    if not log.git:
        return f"There is no history: {log.why}."
    lines = [_commit_text(shell, commit) for commit in log.commits]
    if log.changed:
        lines.insert(0, shell.dim(f"{log.changed} file(s) changed since the last commit"))
    if log.has_more:
        lines.append(shell.dim("(there is more: --limit)"))
    return "\n".join(lines) or "Nothing was committed yet."


def _commit_text(shell: Shell, commit: Commit) -> str:
    at = datetime.fromtimestamp(commit.at / 1000).astimezone()
    added = sum(max(0, file.added) for file in commit.files)
    removed = sum(max(0, file.removed) for file in commit.files)
    return f"{commit.id[:10]}  {at:%Y-%m-%d %H:%M}  {commit.subject}  " + shell.dim(
        f"+{added} −{removed}, {commit.author}"
    )


def _diff_text(shell: Shell, text: str) -> str:
    if not text:
        return "Nothing differs."
    if not shell.color:
        return text.rstrip("\n")
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return "\n".join(click.style(line, fg=colors.get(line[:1])) for line in text.rstrip("\n").split("\n"))


def _restored_text(done: RestoredFile) -> str:
    if not done.changed:
        return f"{done.path} is as it was at {done.commit[:10]} already."
    kept = f" What it held lies in {done.backup}." if done.backup else ""
    return f"{done.path} is as it was at {done.commit[:10]}.{kept}"


def _committed_text(shell: Shell, done: CommittedFiles) -> str:
    lines = [_commit_text(shell, done.commit) if done.commit else "Nothing had changed."]
    lines += [f"left out: {left.path} {left.why}".replace("  ", " ") for left in done.left_out]
    return "\n".join(lines)
