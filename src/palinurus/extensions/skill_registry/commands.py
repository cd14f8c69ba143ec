"""`pal skills search|install|update|verify|publish|draft|drafts|accept`: skills of others, and one's own for others.

`pal skills` finds these commands by name and imports this module when one of them is called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from palinurus.cli.command import command_of, services_of
from palinurus.cli.shell import Shell, echo, with_json
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import BadRequest
from palinurus.extensions.skill_registry import drafts as skill_drafts
from palinurus.extensions.skill_registry import operations
from palinurus.extensions.skill_registry.operations import Update, VerifiedSkill, forget_gone, updates
from palinurus.extensions.skill_registry.operations import verify as verify_installed
from palinurus.extensions.skill_registry.protocol import Publication, read_wanted
from palinurus.extensions.skill_registry.quarantine import QuarantinedSkill, discard, install_skill
from palinurus.extensions.skill_registry.scan import ScanFinding, ScanReport, visible
from palinurus.operations.services import Services
from palinurus.skills.discovery import same_name
from palinurus.skills.skills import read_skills

at_registry = click.option(
    "--registry", default="", metavar="URL", help="Use another registry than the configured one."
)
of_agent = click.option("--agent", default="", metavar="ID", help="Whose workspace. Default: the default agent's.")
without_asking = click.option("--yes", is_flag=True, help="Do not ask for confirmation. Everything is still shown.")

_WHAT = {
    "hidden": "hidden characters",
    "phrase": "may be an instruction to the model",
    "command": "a command to look at",
    "secret": "looks like a secret",
    "blob": "a block of unreadable data",
    "comment": "a comment that is not shown when it is rendered",
}
MAX_ROWS = 20


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=25, show_default=True)
@at_registry
@with_json
@click.pass_obj
def search(shell: Shell, words: tuple[str, ...], limit: int, registry: str) -> None:
    """Look for skills in a registry.

    The registry is skills.registry.url of the config, or what the variable CLAWHUB_REGISTRY says.

    \b
    Examples:
      pal skills search postgres backups
      pal skills search notes --registry https://skills.example.org --json
    """
    found = operations.search(services_of(shell), " ".join(words), limit, registry)
    shell.show(found, lambda: search_text(found))


@click.command("install")
@click.argument("skill")
@click.option("--version", default="", metavar="X.Y.Z", help="This version instead of the latest.")
@click.option("--digest", default="", metavar="SHA256", help="Install only if the digest is this one.")
@click.option("--in-workspace", is_flag=True, help="Install only for one agent, into its workspace.")
@of_agent
@at_registry
@click.option(
    "--force", is_flag=True, help="Replace an existing skill; accept one that the registry marks as suspicious."
)
@without_asking
@with_json
@click.pass_obj
def install(
    shell: Shell, /, skill: str, in_workspace: bool, agent: str, registry: str, force: bool, yes: bool, **named: str
) -> int:
    """Install a skill from a registry, after showing what it contains.

    The skill is downloaded into quarantine and checked there. You see what it may use, its scripts, the addresses it
    names and anything unusual; when you confirm, it is installed and pinned by its digest. Nothing of it is run. The
    checks cannot find everything: read SKILL.md before you confirm. Without confirmation it stays in quarantine for a
    day.

    \b
    Examples:
      pal skills install bear-notes
      pal skills install @ada/bear-notes@1.2.0
      pal skills install bear-notes --in-workspace --agent home --yes
    """
    services = services_of(shell)
    root = operations.skills_root(services, workspace=in_workspace or bool(agent), agent=agent)
    wanted, now = read_wanted(skill, named["version"]), SystemClock().now_ms()
    arrival = operations.fetch_skill(
        services, wanted, address=registry, digest=named["digest"], root=root, force=force, now_ms=now
    )
    taken = _taken(services, agent, arrival, root)
    if not shell.as_json:
        echo(arrival_text(arrival, taken))
    if arrival.suspicious and yes and not force:
        discard(arrival)
        raise BadRequest(f"the registry marks {arrival.pin.slug} as suspicious: {arrival.suspicious}", hint="--force")
    agreed = yes or _agreed(shell, f"Install {arrival.pin.slug} {arrival.pin.version}?")
    folder = str(install_skill(arrival, services.home.root, root, replace=force)) if agreed else ""
    if shell.as_json:
        shell.show(_install_json(arrival, folder), str)
    elif folder:
        echo(f"Installed in {folder}, pinned as {arrival.pin.digest}.")
    return 0 if agreed else 1


@click.command("update")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that were installed from a registry.")
@click.option("--force", is_flag=True, help="Also those that were changed here or are held by `clawhub pin`.")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@without_asking
@with_json
@click.pass_obj
def update(shell: Shell, names: tuple[str, ...], everything: bool, force: bool, dry_run: bool, yes: bool) -> int:
    """Update skills, after showing what changes: files, capabilities, scripts, addresses.

    Each comes from the registry that it was installed from. Exit code 1 when one could not be updated or was declined.

    \b
    Examples:
      pal skills update --all --dry-run
      pal skills update bear-notes
    """
    if bool(names) == everything:
        raise BadRequest("name some skills, or say --all")
    services = services_of(shell)
    rows: list[dict[str, Any]] = []
    for each in updates(services, names, force=force, now_ms=SystemClock().now_ms()):
        if not shell.as_json:
            echo(update_text(each))
        done = False
        if each.arrival is not None:
            wanted = not dry_run and (yes or _agreed(shell, f"Update {each.pin.slug}?"))
            done = wanted and bool(install_skill(each.arrival, services.home.root, each.folder.parent))
        waits = each.arrival is not None and not done and not dry_run
        row = {"slug": each.pin.slug, "said": each.said, "updated": done, "failed": each.failed or waits}
        rows.append(row | ({"changes": each.changes} if each.changes else {}))
    if shell.as_json:
        shell.show({"skills": rows}, str)
    elif not rows:
        echo("No skill was installed from a registry.")
    return 1 if any(row["failed"] for row in rows) else 0


@click.command("verify")
@click.argument("names", nargs=-1)
@click.option(
    "--online", is_flag=True, help="Also ask the registries whether a skill was blocked or its files changed."
)
@click.option("--forget", is_flag=True, help="Drop the pins of skills whose folders are gone.")
@with_json
@click.pass_obj
def verify(shell: Shell, names: tuple[str, ...], online: bool, forget: bool) -> int:
    """Check installed skills against their pins. Exit code 1 when one is not what was installed.

    A skill that was changed is not used until it is installed again.

    \b
    Examples:
      pal skills verify
      pal skills verify bear-notes --online --json
    """
    services = services_of(shell)
    found = verify_installed(services, names, online=online)
    gone = [each for each in found if each.state == "gone"] if forget else []
    for each in gone:
        forget_gone(services, Path(each.folder))
    shell.show(found, lambda: verify_text(found))
    return 0 if all(each.good or each in gone for each in found) else 1


@click.command("publish")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--slug", default="", help="Its name there. Default: the folder's.")
@click.option("--name", "display_name", default="", help="Its title. Default: the name in SKILL.md.")
@click.option("--version", default="", metavar="X.Y.Z", help="Default: SKILL.md's version, or the next one there.")
@click.option("--changelog", default="", help="What is new.")
@click.option("--tag", "tags", multiple=True, help="Default: latest.")
@click.option("--owner", "owner_handle", default="", help="The owner, if the token may publish for several.")
@at_registry
@click.option("--force", is_flag=True, help="Publish although something in it looks like a secret.")
@click.option("--dry-run", is_flag=True, help="Show what would be published.")
@without_asking
@with_json
@click.pass_obj
def publish(shell: Shell, /, folder: Path, registry: str, force: bool, dry_run: bool, yes: bool, **about: Any) -> int:
    """Publish a skill of your own. What would be sent is shown first.

    Your token is in the variable CLAWHUB_TOKEN or in skills.registry.token of the config.

    \b
    Examples:
      pal skills publish ./bear-notes --dry-run
      pal skills publish ./bear-notes --version 1.2.0 --changelog "Reads tags"
    """
    services = services_of(shell)
    prepared = operations.prepare_publication(services, folder, Publication(**about), registry)
    if not shell.as_json:
        echo(publish_text(prepared))
    if prepared.report.secrets and not force:
        first = prepared.report.secrets[0]
        raise BadRequest(f"{first.path}:{first.line} looks like a secret", hint="take it out, or say --force")
    if dry_run:
        if shell.as_json:
            shell.show({"publication": prepared.publication, "files": prepared.bundle.records()}, str)
        return 0
    if not yes and not _agreed(shell, f"Publish at {prepared.registry}?"):
        return 1
    done = operations.publish(services, prepared)
    shell.show(done, lambda: f"Published {done.slug}@{done.version} at {done.registry}.")
    return 0


def _agreed(shell: Shell, question: str) -> bool:
    if shell.as_json or not sys.stdin.isatty():
        shell.warn("nothing was done: needs a terminal to confirm; use --yes")
        return False
    return click.confirm(question, default=False)


def _taken(services: Services, agent: str, arrival: QuarantinedSkill, root: Path) -> str:
    """Where another skill of that name is: one of the two would shadow the other."""
    listing = read_skills(services.home, services.env, agent).listing()
    wanted, own = same_name(arrival.about.name), str(root / arrival.pin.slug)
    others = (each for each in listing.found.skills if each.folder != own)
    return next((each.location for each in others if same_name(each.name) == wanted), "")


def _install_json(arrival: QuarantinedSkill, folder: str) -> dict[str, Any]:
    shown = {"pin": arrival.pin, "about": arrival.about, "mayUse": arrival.may_use, "report": arrival.report}
    return {"installed": bool(folder), "folder": folder, **shown, "suspicious": arrival.suspicious}


@click.command("drafts")
@with_json
@click.pass_obj
def drafts(shell: Shell) -> None:
    """List the drafts that wait for review.

    \b
    Example:
      pal skills drafts
    """
    found = skill_drafts.waiting_drafts(shell.home)
    shell.show(found, lambda: "\n".join(map(_row, found)) or "There are no drafts.")


@click.command("accept")
@click.argument("name")
@with_json
@click.pass_obj
def accept(shell: Shell, name: str) -> None:
    """Turn a draft into a skill that agents can use. An existing skill is not replaced.

    \b
    Example:
      pal skills accept tide-table
    """
    place = skill_drafts.accept_draft(shell.home, name)
    shell.show({"name": place.parent.name, "path": str(place)}, lambda: f"{place.parent.name} is a skill now: {place}")


def _draft_text(_: Shell, found: skill_drafts.SkillDraft) -> str:
    lines = [found.text.rstrip(), "", f"Drafted {found.name}, {found.steps} steps: {found.path}"]
    lines += [f"  look: {note}" for note in found.notes]
    return "\n".join([*lines, f"Edit it as you like; then `pal skills accept {found.name}`."])


def _row(each: skill_drafts.WaitingDraft) -> str:
    return f"{each.name}  {each.trouble or each.description}\n  {each.path}"


def search_text(found: operations.RegistrySearch) -> str:
    if not found.results:
        return f"Nothing was found at {found.registry}."
    lines = []
    for each in found.results:
        version = f" {visible(each.version, 30)}" if each.version else ""
        owner = f"  @{visible(each.owned_by, 40)}" if each.owned_by else ""
        lines.append(f"{visible(each.slug, 64)}{version}{owner}  {visible(each.summary or each.display_name, 90)}")
    return "\n".join(lines)


def arrival_text(arrival: QuarantinedSkill, taken: str = "") -> str:
    pin, about = arrival.pin, arrival.about
    rows = {
        "what": visible(about.description, 400),
        "from": f"{pin.registry}{f', published by {visible(pin.owner)}' if pin.owner else ''}",
        "may use": visible(arrival.may_use, 400),
        "programs": ", ".join((*about.requires.bins, *(f"{name}?" for name in about.requires.any_bins))),
        "variables": ", ".join(dict.fromkeys((*about.requires.env, *filter(None, (about.primary_env,))))),
        "installs": "; ".join(f"{each.kind} {each.package or each.url}" for each in about.install),
        "digest": pin.digest,
        "look at": str(arrival.folder),
    }
    lines = [f"{about.name} {pin.version}"]
    lines += [f"  {key:<10} {visible(value, 400)}" for key, value in rows.items() if value]
    lines += _report(arrival.report)
    if arrival.suspicious:
        lines.append(f"  ! the registry marks it as suspicious: {visible(arrival.suspicious, 300)}")
    if taken:
        lines.append(f"  ! a skill of that name already exists: {visible(taken, 300)}")
    return "\n".join(lines)


def update_text(each: Update) -> str:
    lines = [f"{each.pin.slug}: {visible(each.said, 400)}"]
    if each.changes is not None and each.arrival is not None:
        differences = ((what, getattr(each.changes, what)) for what in ("added", "changed", "removed"))
        lines += [f"  {what:<8} {visible(', '.join(paths), 300)}" for what, paths in differences if paths]
        lines += [f"  ! {visible(line, 300)}" for line in each.changes.lines]
        lines += [_hint(found) for found in each.changes.findings[:MAX_ROWS]]
        lines.append(f"  look at  {each.arrival.folder}")
        if each.arrival.suspicious:
            lines.append(f"  ! the registry marks it as suspicious: {visible(each.arrival.suspicious, 300)}")
    return "\n".join(lines)


def verify_text(found: tuple[VerifiedSkill, ...]) -> str:
    if not found:
        return "No skill was installed from a registry."
    width = max(len(each.slug) for each in found)
    return "\n".join(
        f"{each.state:<9}  {each.slug:<{width}}  {each.version}{f'  {visible(each.said, 300)}' if each.said else ''}"
        for each in found
    )


def publish_text(prepared: operations.PreparedPublication) -> str:
    about = prepared.publication
    lines = [f"{about.slug}@{about.version} ({about.display_name}) for {prepared.registry}"]
    paths = list(prepared.bundle.files)
    lines += [f"  {path}" for path in paths[:MAX_ROWS]]
    if len(paths) > MAX_ROWS:
        lines.append(f"  … and {len(paths) - MAX_ROWS} more")
    lines += _report(prepared.report)
    return "\n".join(lines)


def _hint(each: ScanFinding) -> str:
    return f"  ? {visible(each.path, 80)}:{each.line}: {_WHAT[each.what]}: {visible(each.text, 120)}"


def _report(report: ScanReport) -> Iterator[str]:
    yield f"  files      {report.files}, {report.bytes:,} bytes"
    if report.scripts:
        yield f"  scripts    {visible(', '.join(report.scripts), 300)}"
    if report.hosts:
        yield f"  addresses  {visible(', '.join(each.host for each in report.hosts), 300)}"
    for each in report.findings[:MAX_ROWS]:
        yield _hint(each)
    more = report.more + max(0, len(report.findings) - MAX_ROWS)
    if more:
        yield f"  ? … and {more} more"
    if report.unsearched:
        yield f"  ? {report.unsearched:,} characters were not searched: it is unusually large"


draft = command_of(skill_drafts.draft_skill, _draft_text)
