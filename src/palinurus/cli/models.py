"""`pal models`: which models there are, which one is asked, and whether it answers."""

from __future__ import annotations

import click

from palinurus.cli.auth import auth
from palinurus.cli.derived import command_of
from palinurus.cli.entrance import ground_of, make_on_first_run
from palinurus.cli.install import install
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.operations.catalog import (
    ListedModel,
    alias_add,
    alias_remove,
    aliases_list,
    fallbacks_add,
    fallbacks_clear,
    fallbacks_remove,
    models_choice,
    models_here,
    models_set,
)
from palinurus.operations.models import ModelStatus, ProbeReport, probe_model, show_model_status
from palinurus.providers.offers import Price


@click.group()
def models() -> None:
    """Choose models, store keys, test them."""


models.add_command(auth)
models.add_command(install)


@models.command("list")
@click.option("--all", "everything", is_flag=True, help="Also models of providers that no key is there for.")
@with_json
@click.pass_obj
def list_models(shell: Shell, everything: bool) -> None:
    """List the models that are known: window, prices, short names.

    \b
    Examples:
      pal models list
      pal models list --all --json
    """
    known = run_async(models_here(ground_of(shell)))
    listed = tuple(model for model in known if everything or model.usable)
    shell.show(listed, lambda: _list_text(listed, everything=everything))


@models.command("set")
@click.argument("model")
@with_json
@click.pass_obj
def set_(shell: Shell, model: str) -> None:
    """Make MODEL the one that is asked first: provider/model or a short name.

    \b
    Examples:
      pal models set anthropic/claude-sonnet-5-5
      pal models set sonnet
    """
    make_on_first_run(shell)
    ref = models_set(ground_of(shell), model)
    shell.show({"model": ref}, lambda: f"{ref} is asked first.")


@models.group("aliases")
def aliases() -> None:
    """Short names of models."""


@aliases.command("list")
@with_json
@click.pass_obj
def alias_listing(shell: Shell) -> None:
    """List the short names.

    \b
    Example:
      pal models aliases list
    """
    listed = aliases_list(ground_of(shell))
    width = max(len(alias.alias) for alias in listed)
    lines = [f"{alias.alias:<{width}}  {alias.ref}{'' if alias.built_in else '  (config)'}" for alias in listed]
    shell.show(listed, lambda: "\n".join(lines))


@aliases.command("add")
@click.argument("alias")
@click.argument("model")
@with_json
@click.pass_obj
def alias_adding(shell: Shell, alias: str, model: str) -> None:
    """Let ALIAS stand for MODEL.

    \b
    Example:
      pal models aliases add fast groq/openai/gpt-oss-120b
    """
    make_on_first_run(shell)
    added = alias_add(ground_of(shell), alias, model)
    shell.show(added, lambda: f"{added.alias} stands for {added.ref}.")


@aliases.command("remove")
@click.argument("alias")
@with_json
@click.pass_obj
def alias_removing(shell: Shell, alias: str) -> None:
    """Take a short name out of the config.

    \b
    Example:
      pal models aliases remove fast
    """
    alias_remove(ground_of(shell), alias)
    shell.show({"removed": alias}, lambda: f"{alias} is gone.")


@models.group("fallbacks")
def fallbacks() -> None:
    """Models that are asked when the first does not answer."""


@fallbacks.command("list")
@with_json
@click.pass_obj
def fallback_listing(shell: Shell) -> None:
    """List the fallbacks in their order.

    \b
    Example:
      pal models fallbacks list
    """
    _show_fallbacks(shell, models_choice(ground_of(shell)).fallbacks)


@fallbacks.command("add")
@click.argument("model")
@with_json
@click.pass_obj
def fallback_adding(shell: Shell, model: str) -> None:
    """Put MODEL at the end of the fallbacks.

    \b
    Example:
      pal models fallbacks add openai/gpt-6-luna
    """
    make_on_first_run(shell)
    _show_fallbacks(shell, fallbacks_add(ground_of(shell), model))


@fallbacks.command("remove")
@click.argument("model")
@with_json
@click.pass_obj
def fallback_removing(shell: Shell, model: str) -> None:
    """Take MODEL out of the fallbacks.

    \b
    Example:
      pal models fallbacks remove openai/gpt-6-luna
    """
    _show_fallbacks(shell, fallbacks_remove(ground_of(shell), model))


@fallbacks.command("clear")
@with_json
@click.pass_obj
def fallback_clearing(shell: Shell) -> None:
    """Take all fallbacks out.

    \b
    Example:
      pal models fallbacks clear
    """
    _show_fallbacks(shell, fallbacks_clear(ground_of(shell)))


def _show_fallbacks(shell: Shell, refs: tuple[str, ...]) -> None:
    shell.show(refs, lambda: "\n".join(refs) or "No fallbacks.")


def _list_text(listed: tuple[ListedModel, ...], *, everything: bool) -> str:
    width = max(len(model.ref) for model in listed)
    lines = [f"{'model':<{width}}  {'window':>9}  {'in':>7}  {'out':>7}  {'cached':>7}  short names"]
    for model in listed:
        window = f"{model.info.context_window:,}" if model.info.context_window else "-"
        marks = "" if model.usable else f"  ({model.lacks})"
        names = ", ".join(model.aliases)
        lines.append(f"{model.ref:<{width}}  {window:>9}  {_prices(model.info.price)}  {names}{marks}".rstrip())
    lines.append("US dollars per million tokens; - is not known." + ("" if everything else " --all lists the others."))
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
        other = "" if report.answered == report.asked else f" (asked was {report.asked})"
        took = f"first sign after {report.first_ms} ms, {report.total_ms} ms in all"
        last = f"{report.answered} answers{other}: {took}, {tokens}"
    else:
        hint = f" ({report.hint})" if report.hint else ""
        last = f"{report.asked} does not answer: {report.error_kind}: {report.error}{hint}"
    return "\n".join((*report.notices, last))


models.add_command(command_of(show_model_status, _status_text, makes_home=True))
models.add_command(
    command_of(probe_model, _probe_text, makes_home=True, exit_code=lambda report: 0 if report.ok else 1)
)
