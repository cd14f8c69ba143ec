"""`pal agents`: several agents in one home."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import UNSET

from palinurus.cli.command import call_operation, command_of, complete_agents
from palinurus.cli.shell import CommandGroup, Shell, confirm, shorten, with_shell
from palinurus.config.home import expand_user
from palinurus.domain.errors import BadRequest
from palinurus.operations.agent_changes import (
    ChangedIdentity,
    ChangeIdentity,
    CreatedAgent,
    NewAgent,
    UpdateAgent,
    create_agent,
    delete_agent,
    set_identity,
    update_agent,
)
from palinurus.operations.agents import AgentList, AgentView, list_agents, show_agent
from palinurus.operations.bindings import ChangeBindings, ChangedBindings, bind_agent, unbind_agent
from palinurus.workspace.seed import KINDS

F = TypeVar("F", bound=Callable[..., Any])
MOST_OF_A_VALUE = 100
_id = click.argument("agent", metavar="ID", shell_complete=complete_agents)


@click.group(cls=CommandGroup)
def agents() -> None:
    """Keep several agents in one home, each with its own workspace, keys, memory and sessions.

    `pal chat --agent ID` and `pal agent --agent ID` talk with one of them; /agent changes to another in a chat.
    """


def _list_text(shell: Shell, listed: AgentList) -> str:
    width = max(len(each.id) for each in listed.agents)
    lines = []
    for each in listed.agents:
        mark = "*" if each.id == listed.default_id else " "
        told = (each.identity.title if each.identity.title != each.id else "", each.model.primary, *each.bindings)
        lines.append(f"{mark} {each.id:<{width}}  {each.workspace}" + "".join(f"  {word}" for word in told if word))
    return "\n".join([*lines, shell.dim("* answers when no agent is named")])


def _show_text(shell: Shell, view: AgentView) -> str:
    said = view.identity
    rows = [
        ("agent", f"{view.id}{' (the default)' if view.is_default else ''}", ""),
        ("name", view.name if view.name != view.id else "", ""),
        ("identity", " · ".join(each for each in (said.title, said.traits) if each and each != view.id), ""),
        ("workspace", view.workspace, ""),
        ("own keys", view.agent_dir, ""),
        ("memory", view.memory_index, ""),
        *(("bound to", each.text, "") for each in view.bindings),
        *((each.key, _value_text(each.value), each.where or "default") for each in view.settings),
    ]
    shown = [row for row in rows if row[1]]
    width = max(len(name) for name, _, _ in shown)
    return "\n".join(
        f"{name:<{width}}  {value}" + (shell.dim(f"  {where}") if where else "") for name, value, where in shown
    )


def _value_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shorten(text, MOST_OF_A_VALUE) if value is not None else "not set"


agents.add_command(command_of(list_agents, _list_text))
agents.add_command(command_of(show_agent, _show_text))


@agents.command("add")
@click.argument("agent", metavar="ID")
@click.option(
    "--workspace", type=click.Path(path_type=Path), metavar="DIR", help="Its folder. Default: one in the home."
)
@click.option("--name", default="", help="What people see. Default: the id.")
@click.option("--model", default="", help="As provider/model. Default: that of all agents.")
@click.option("--emoji", default="", help="Shown beside its name.")
@click.option(
    "--template",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="What its files and tools are for.",
)
@click.option(
    "--from", "source", default="", metavar="AGENT", shell_complete=complete_agents,
    help="Take over the settings, markdown files and skills of this agent; not its memory, keys and sessions.",
)  # fmt: skip
@click.option("--with-memory", is_flag=True, help="With --from: its MEMORY.md and memory/ as well.")
@click.option("--default", is_flag=True, help="Messages that name no agent go to it.")
@click.option("--bind", multiple=True, metavar="CHANNEL[:ACCOUNT]", help="Let it answer there; may be repeated.")
@with_shell
def add(shell: Shell, agent: str, workspace: Path | None, **given: Any) -> None:
    """Add an agent with a workspace of its own.

    A template decides what AGENTS.md, SOUL.md and IDENTITY.md say and which tools the agent has: coder has those for
    code; researcher cannot run commands or send messages; home cannot run commands. A folder that exists keeps its
    files.

    \b
    Examples:
      pal agents add work
      pal agents add work --workspace ~/work --template coder --model anthropic/claude-opus-4-5
      pal agents add twin --from work --bind telegram:ops --json
    """
    if given["with_memory"] and not given["source"]:
        raise BadRequest("--with-memory needs --from", hint="name the agent whose memory is meant")
    place = str(expand_user(str(workspace), shell.home.user_home).absolute()) if workspace else ""
    made = call_operation(shell, create_agent, NewAgent(id=agent, workspace=place, **given))
    shell.show(made, lambda: _made_text(made))


def _made_text(made: CreatedAgent) -> str:
    lines = [f"{made.agent_id} lives in {made.workspace}."]
    lines += ["Messages that name no agent go to it now."] if made.default else []
    lines += [f"It answers at {place}." for place in made.bindings]
    return "\n".join([*lines, f"Talk with it: pal chat --agent {made.agent_id}"])


@agents.command("remove")
@_id
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_shell
def remove(shell: Shell, agent: str, yes: bool) -> None:
    """Remove an agent and its bindings from the config. Its files, keys and sessions stay.

    \b
    Example:
      pal agents remove work --yes
    """
    view = call_operation(shell, show_agent, show_agent.params(agent))
    if view.is_default:
        raise BadRequest(f"{view.id} is the default agent", hint="make another one the default: pal agents default ID")
    if not yes:
        bound = [f"It no longer answers at {each.text}." for each in view.bindings]
        kept = f"Its workspace {view.workspace}, its keys and its sessions stay."
        confirm("pal agents remove", "\n".join([f"{view.id} leaves the config.", *bound, kept, "Remove it?"]))
    done = call_operation(shell, delete_agent, delete_agent.params(view.id))
    shell.show(
        done, lambda: f"{view.id} is removed, with {len(view.bindings)} binding(s). {view.workspace} is still there."
    )


@agents.command("default")
@_id
@with_shell
def default(shell: Shell, agent: str) -> None:
    """Make this agent the default: it gets messages that name no agent. No workspace moves.

    \b
    Example:
      pal agents default work
    """
    done = call_operation(shell, update_agent, UpdateAgent(agent, default=True))
    shell.show(done, lambda: f"Messages that name no agent go to {done.agent_id} now.")


@agents.command("set-identity")
@_id
@click.option("--name", help="Its name.")
@click.option("--emoji", help="Shown beside its name.")
@click.option("--creature", help="What it is.")
@click.option("--vibe", help="How it comes across.")
@click.option("--theme", help="Its style in a few words.")
@click.option("--avatar", help="A picture: a path in its workspace or an address.")
@click.option("--from-file", is_flag=True, help="Take what IDENTITY.md of its workspace says.")
@click.option("--file", is_flag=True, help="Write IDENTITY.md instead of the config.")
@with_shell
def identify(shell: Shell, agent: str, from_file: bool, file: bool, **given: str | None) -> None:
    """Say who an agent is. The config comes before IDENTITY.md; an empty value removes a field.

    \b
    Examples:
      pal agents set-identity work --name Ada --emoji 🦉
      pal agents set-identity work --from-file
      pal agents set-identity work --vibe calm --file
    """
    if from_file and file:
        raise BadRequest("--from-file reads what --file would write", hint="use one of them")
    said = {field: UNSET if value is None else value for field, value in given.items()}
    done = call_operation(shell, set_identity, ChangeIdentity(agent, **said, from_file=from_file, file=file))
    shell.show(done, lambda: _identity_text(done))


def _identity_text(done: ChangedIdentity) -> str:
    told = " · ".join(each for each in (done.identity.title, done.identity.traits) if each)
    lines = [f"{done.agent_id} is {told or 'nobody in particular'}.", f"Written to {done.file}."]
    return "\n".join([*lines, *(f"The config says another {field}, which comes first." for field in done.hidden)])


def _places(command: F) -> F:
    """What names a place."""
    for decorate in (
        click.option("--team", default="", metavar="ID", help="Only in this team (Slack)."),
        click.option(
            "--role", "roles", multiple=True, metavar="ID", help="Only for members with this role; repeatable."
        ),
        click.option("--guild", default="", metavar="ID", help="Only in this guild (Discord)."),
        click.option(
            "--peer", default="", metavar="KIND:ID", help="Only there: direct:ID, group:ID, channel:ID; ID may be *."
        ),
        click.argument("where", nargs=-1, metavar="CHANNEL[:ACCOUNT]..."),
        _id,
    ):
        command = decorate(command)
    return command


@agents.command("bind")
@_places
@with_shell
def bind(shell: Shell, agent: str, **given: Any) -> None:
    """Let an agent answer in a channel. Who may write there is set in the channel.

    \b
    Examples:
      pal agents bind work slack --team T123456
      pal agents bind home telegram:family whatsapp
      pal agents bind work discord --guild 42 --role 7 --role 8
      pal agents bind home telegram --peer direct:12345
    """
    done = call_operation(shell, bind_agent, ChangeBindings(agent, **given))
    shell.show(done, lambda: _bindings_text(done, "answers at"))


@agents.command("unbind")
@_places
@click.option("--all", "every", is_flag=True, help="All that it is bound to.")
@with_shell
def unbind(shell: Shell, agent: str, **given: Any) -> None:
    """Remove a binding, named as for `bind`. `pal agents show` lists them.

    \b
    Examples:
      pal agents unbind work slack --team T123456
      pal agents unbind home --all
    """
    done = call_operation(shell, unbind_agent, ChangeBindings(agent, **given))
    shell.show(done, lambda: _bindings_text(done, "no longer answers at"))


def _bindings_text(done: ChangedBindings, verb: str) -> str:
    lines = [f"{done.agent_id} {verb} {each.text}." for each in done.changed]
    lines += [f"{done.agent_id} answered at {each.text} already." for each in done.unchanged]
    return "\n".join(lines) or f"{done.agent_id} is bound to nothing."
