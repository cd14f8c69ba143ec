"""`pal workspace`: what changed in an agent's files, and an old version put back."""

from __future__ import annotations

import click

from palinurus.cli.command import add_operation
from palinurus.cli.shell import CommandGroup, Shell, moment
from palinurus.operations import workspace as operations
from palinurus.operations.workspace import CommittedFiles, RestoredFile, WorkspaceDiff, WorkspaceLog
from palinurus.workspace.history import Commit


@click.group(cls=CommandGroup)
def workspace() -> None:
    """Show changes to an agent's files, and restore old versions.

    A new workspace is a git repository, and a run that changes files ends with a commit. The config key
    agents.defaults.workspaceHistory turns this on or off. A repository of your own is used as it is; its history is
    never rewritten.
    """


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
    added = sum(max(0, file.added) for file in commit.files)
    removed = sum(max(0, file.removed) for file in commit.files)
    about = shell.dim(f"+{added} −{removed}, {commit.author}")
    return f"{commit.id[:10]}  {moment(commit.at)}  {commit.subject}  {about}"


def _diff_text(shell: Shell, diff: WorkspaceDiff) -> str:
    text = diff.text.rstrip("\n") if diff.text else "Nothing differs."
    if shell.color and diff.text:
        colors = {"+": "green", "-": "red", "@": "cyan"}
        text = "\n".join(click.style(line, fg=colors.get(line[:1])) for line in text.split("\n"))
    return text + ("\n(cut off here)" if diff.truncated else "")


def _restored_text(_: Shell, done: RestoredFile) -> str:
    if not done.changed:
        return f"{done.path} is as it was at {done.commit[:10]} already."
    kept = f" The previous version is in {done.backup}." if done.backup else ""
    return f"{done.path} is as it was at {done.commit[:10]}.{kept}"


def _committed_text(shell: Shell, done: CommittedFiles) -> str:
    lines = [_commit_text(shell, done.commit) if done.commit else "Nothing has changed."]
    lines += [f"left out: {left.path} {left.why}".replace("  ", " ") for left in done.left_out]
    return "\n".join(lines)


add_operation(workspace, operations.show_log, _log_text, exit_code=lambda log: 0 if log.git else 1)
add_operation(workspace, operations.show_diff, _diff_text)
add_operation(workspace, operations.restore_file, _restored_text)
add_operation(workspace, operations.commit_files, _committed_text)
