"""Plan our config after an import: the new text, and what becomes of every setting of the other config.

A setting of ours always wins. A setting that our schema refuses is left out alone: settings are removed until the rest
is valid, so the result always loads. Settings that can run a program, move a secret or loosen a rule (config/risks.py)
are taken only if a person has allowed them by name. Nothing is written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from palinurus.config.agents import default_agent
from palinurus.config.include import INCLUDE, MAX_BYTES
from palinurus.config.load import Config, check_data
from palinurus.config.rewrite import apply_changes, changes, merged
from palinurus.config.risks import is_loopback, risk_of
from palinurus.config.secrets import MASK
from palinurus.config.source import MAX_NESTING, JsonPath, format_path, parse
from palinurus.config.tree import BOOKKEEPING, READ, root
from palinurus.extensions.migrate.foreign import ForeignAgent, as_object
from palinurus.extensions.migrate.openclaw.config_rules import (
    NEEDS_DECISION,
    PathMoves,
    holds_secret,
    is_workspace,
    reason_unused,
    secrets_in,
    stays_behind,
    unusable,
)
from palinurus.extensions.migrate.openclaw.settings import (
    DEFAULTS,
    LISTED,
    Roster,
    Setting,
    agent_id,
    build,
    find_settings,
    get,
    list_of,
    settings_of,
    shown_settings,
)
from palinurus.extensions.migrate.report import MOST_LISTED, FoundSetting, SettingOutcome
from palinurus.providers.catalog import FREE
from palinurus.providers.choose import known_provider

USED = frozenset(root().keys or ()) | READ
INLINE = "a secret; `--keys` imports it"
INLINE_UNUSED = "a secret of a part that is not imported"
HERE = "already set here"
OTHER = "your value is different"
INCOMPLETE = "useless without its other settings"
COPIED = "files go to the agent's workspace in this home"
# Fields that say where a server is, and how it is spoken to.
ADDRESSES = frozenset({"command", "args", "cwd", "url", "baseUrl", "endpoint", "api"})
MOST_SHOWN = 200  # characters of a value


class Ours(Struct, frozen=True):
    """Our config."""

    text: str  # of the file itself
    raw: dict[str, Any]  # with included files
    default: str  # the default agent
    env: Mapping[str, str]


class ConfigPlan(Struct, frozen=True):
    text: str  # the new content of our file
    settings: tuple[FoundSetting, ...]


class ConfigPlanner:
    """`agents` are all agents of the other home, also those that its config does not name. `keys`: with secrets.

    `allow` has the paths of settings that may run programs, move secrets or loosen rules; each covers all below it.
    """

    def __init__(
        self,
        data: dict[str, Any],
        agents: Sequence[ForeignAgent],
        ours: Ours,
        moves: PathMoves,
        *,
        keys: bool,
        allow: Sequence[str] = (),
    ) -> None:
        self._ours = ours
        self._own = parse(ours.text)
        self._roster = Roster(self._own)
        self._folders = {agent.id: agent.workspace for agent in agents}
        self._settings = settings_of(data, self._roster, list(self._folders))
        self._given = {setting.into: setting.value for setting in self._settings}
        self._redactor = secrets_in(data, self._settings)
        listed = get(ours.raw, LISTED) or []
        self._indexes = {agent_id(as_object(each).get("id")): at for at, each in enumerate(listed)}
        self._moves = moves
        self._keys = keys
        self._allow = allow

    def plan(self) -> ConfigPlan:
        for setting in self._settings:
            if setting.outcome is None and setting.source and not _is_id(setting.into):
                self._judge(setting)
        self._end_invalid(lambda tree: tree, "refused", "")
        self._end_incomplete()
        self._end_unused()
        self._keep_ours()
        self._hold_risky()
        self._end_incomplete()
        self._end_without_provider()
        self._end_invalid(lambda tree: merged(self._ours.raw, tree), "kept-yours", "it conflicts with yours: ")
        text = self._text()
        if len(text.encode()) > MAX_BYTES:
            for setting in self._open():
                if setting.source:
                    setting.end("refused", "the config would be larger than 2 MiB")
            text = self._text()
        return ConfigPlan(text, tuple(self._report()))

    def _open(self) -> list[Setting]:
        """Settings without an outcome, which are to be taken."""
        return [setting for setting in self._settings if setting.outcome is None]

    def _judge(self, setting: Setting) -> None:
        """End it for reasons that need no other setting, or move the paths in it."""
        if setting.value is None or setting.value == {}:
            return setting.end("left", "it is empty")
        if setting.into[0] == "plugins":  # also secrets: they are of programs that are not here
            setting.source = setting.source[:1]
            return setting.end("left", reason_unused(setting.source))
        if not self._keys and holds_secret(setting, self._redactor):
            return setting.end("secret", INLINE)
        if not _can_be_written(setting):
            return setting.end("refused", "it cannot be written to a config")
        if reason := unusable(setting):
            return setting.end("refused", reason)
        if is_workspace(setting.into) and isinstance(setting.value, str):
            agent = self._roster.agent_of(setting.into)
            has_folder = self._folders.get(agent, next(iter(self._folders.values()), None))
            return setting.end("taken", COPIED) if has_folder else setting.end("left", "there is no such folder")
        if setting.into[-1] == "default" and setting.into[:2] == LISTED and len(setting.into) == 4:
            is_other = setting.value is True and self._roster.agent_of(setting.into) != self._ours.default
            if is_other:  # an import does not change our default agent
                return setting.end("kept-yours", f"{self._ours.default} is the default agent here")
            return setting.end("taken") if setting.value is False else None
        reason = stays_behind(setting, self._given)
        if reason and not (reason == NEEDS_DECISION and self._is_allowed(setting)):
            return setting.end("left", reason)
        return self._moves.apply(setting)

    def _end_incomplete(self) -> None:
        """A server or provider whose address is not taken stays behind: its key would go to another address."""
        ended = [setting.into for setting in self._settings if setting.outcome in ("secret", "held", "refused")]
        units = [(_unit(into), into) for into in ended]
        incomplete = {unit for unit, into in units if unit and set(into[len(unit) :][:1]) & ADDRESSES}
        for setting in self._open():
            if _unit(setting.into) in incomplete:
                setting.end("left", INCOMPLETE)

    def _end_without_provider(self) -> None:
        """A model whose provider stays behind would fail the first run; without it a model is chosen here."""
        tree, _ = build(self._open())
        here = get(merged(self._ours.raw, tree), ("models", "providers"))
        for setting in self._open():
            if _names_model(setting.into) and isinstance(setting.value, str):
                name, slash, _ = setting.value.partition("/")
                name = name.strip().lower()
                if slash and name not in FREE and known_provider(name) is None and name not in as_object(here):
                    setting.end("left", f"its provider {name} is not imported")

    def _hold_risky(self) -> None:
        """Hold what can do harm and was not allowed by name. A model server on this machine is taken if it gets no key
        of this machine: neither by a reference nor because it has the name of a provider with a known key."""
        keyed = {into[:3] for into, value in self._given.items() if _reads_secret(into, value)}
        for setting in self._open():
            if setting.source and not _is_id(setting.into):
                reason = risk_of(setting.into, setting.value)
                harmless = _is_local_server(setting) and setting.into[:3] not in keyed
                if reason and not harmless and not self._is_allowed(setting):
                    setting.end("held", reason)

    def _is_allowed(self, setting: Setting) -> bool:
        path = setting.source
        return bool(self._allow) and any(format_path(path[:size]) in self._allow for size in range(1, len(path) + 1))

    def _end_invalid(self, whole: Callable[[dict[str, Any]], Any], outcome: SettingOutcome, prefix: str) -> None:
        """End settings until the config that `whole` makes of the rest is valid."""
        while alive := self._open():
            tree, paths = build(alive)
            data = whole(tree)
            found = check_data(data, self._ours.env)
            if isinstance(found, Config):
                return
            wrong = {self._path_in(tree, path, data): words for path, words in found.items()}
            reasons = find_settings(alive, paths, wrong)
            for setting in alive:
                if setting.into in reasons:  # values are never shown
                    setting.end(outcome, f"{prefix}{reasons[setting.into].partition(', got ')[0]}")

    def _path_in(self, tree: Any, path: JsonPath, data: Any) -> JsonPath:
        """A path of the merged data as a path of what is imported: an agent has another index there."""
        if path[:2] != LISTED or len(path) < 3:
            return path
        named = as_object(get(data, path[:3])).get("id")
        imported = [as_object(each).get("id") for each in get(tree, LISTED) or []]
        return (*LISTED, imported.index(named), *path[3:]) if named in imported else LISTED

    def _end_unused(self) -> None:
        """End what our schema accepts without using it. It is reported at the path where the unused part begins."""
        tree, paths = build(self._open())
        config = check_data(tree, self._ours.env)
        if not isinstance(config, Config):
            return
        findings = config.findings(thorough=True)  # also of sections that nothing has imported yet
        unused = {path for path, _ in findings.unknown} | {path for path, why in findings.unused if not why}
        unused |= {(name,) for name in BOOKKEEPING}
        # These would cause a warning with every command.
        odd = {path: text for path, text in findings.odd if path[-1] in ("provider", "sources")}
        for setting in self._settings:
            built = paths.get(setting.into, setting.into)
            size = next((size for size in range(1, len(built) + 1) if built[:size] in unused), 0)
            if setting.outcome == "secret" and (size or setting.into[0] not in USED):
                setting.end("secret", INLINE_UNUSED)
            elif setting.outcome is None and size and setting.into[0] != "secrets":
                setting.source = setting.source[: len(setting.source) - (len(built) - size)]
                setting.end("left", reason_unused(setting.source))
            elif setting.outcome is None and built in odd:
                setting.end("left", self._redactor.redact(odd[built]))

    def _keep_ours(self) -> None:
        alive = self._open()
        tree, paths = build(alive)
        for setting in alive:
            if _is_id(setting.into):
                continue
            built = paths[setting.into]
            missing, same = self._compare(_closed_up(setting.into, built), setting.value)
            unit = _unit(setting.into)
            place = self._place(unit) if unit else None
            if same:
                setting.end("taken", HERE)
            elif not missing or (place and not _within(get(self._ours.raw, place), get(tree, built[: len(unit)]))):
                setting.end("kept-yours", OTHER)  # a unit is only added to if all that ours has in it is the same

    def _compare(self, into: JsonPath, value: Any) -> tuple[bool, bool]:
        """Whether ours has nothing at that path, and whether it has the same."""
        # The newer path of the same setting, which the older one would override.
        newer = ("memory", "search", *into[3:]) if into[:3] == ("agents", "defaults", "memorySearch") else None
        places = [place for place in (self._place(into), newer) if place]
        found = [each for place in places if (each := get(self._ours.raw, place)) is not None]
        return not found and not self._is_blocked(into), any(_equal(each, value) for each in found)

    def _is_blocked(self, into: JsonPath) -> bool:
        """Whether ours has a plain value where an object would have to be."""
        place = self._place(into) or ()
        above = (get(self._ours.raw, place[:size]) for size in range(1, len(place)))
        return any(each is not None and not isinstance(each, dict | list) for each in above)

    def _place(self, into: JsonPath) -> JsonPath | None:
        """The path in ours, where a listed agent has an index; None when ours does not have the agent."""
        if into[:2] != LISTED:
            return into
        index = self._indexes.get(self._roster.agent_of(into))
        return None if index is None else (*LISTED, index, *into[3:])

    def _text(self) -> str:
        patch, _ = build(self._open())
        config = check_data(merged(self._ours.raw, patch), self._ours.env)
        if isinstance(config, Config) and default_agent(config) != self._ours.default:
            mark = {"agents": {"list": [{"id": self._roster.written(self._ours.default), "default": True}]}}
            patch = merged(patch, mark)
        return apply_changes(self._ours.text, list(changes(self._own, patch)), merged(self._own, patch))

    def _report(self) -> Iterator[FoundSetting]:
        for setting in self._open():
            setting.end("taken")
        named = [setting for setting in self._settings if setting.source]
        held = {setting.source: setting for setting in named if setting.outcome == "held"}  # each with its value
        rest = shown_settings([setting for setting in named if setting.outcome != "held"])
        for path, setting in list({**held, **rest}.items())[:MOST_LISTED]:
            steps = tuple(self._redactor.redact(step) if isinstance(step, str) else step for step in path)
            yield FoundSetting(format_path(steps), setting.outcome or "taken", setting.reason, self._value(setting))

    def _value(self, setting: Setting) -> str:
        """What a person sees before allowing it. ASCII, so that it cannot move the cursor or change colours."""
        if setting.outcome != "held":
            return ""
        secret = holds_secret(setting, self._redactor)
        text = json.dumps(MASK) if secret else self._redactor.redact(json.dumps(setting.value))
        return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


_UNITS = (
    *(("models", "providers", "*"), ("mcp", "servers", "*"), ("skills", "entries", "*")),
    *(("session", "resetByType", "*"), ("session", "resetByChannel", "*"), ("session", "reset")),
    *(("diagnostics", "otel"), ("skills", "registry"), ("tools", "web", "search")),
    *(("agents", "defaults", "model"), ("agents", "list", "*", "model"), ("agents", "entries", "*", "model")),
)


def _unit(into: JsonPath) -> JsonPath:
    """The part that is taken whole or added to: mixing two of them could send a key to the wrong address."""
    for unit in _UNITS:
        if len(into) >= len(unit) and all(want in ("*", step) for want, step in zip(unit, into, strict=False)):
            return into[: len(unit)]
    listed = list_of(into)
    return listed if len(listed) < len(into) else ()


def _is_local_server(setting: Setting) -> bool:
    path = setting.into
    if path[:2] != ("models", "providers") or path[3:] != ("baseUrl",) or not is_loopback(setting.value):
        return False
    known = known_provider(str(path[2]).strip().lower())
    return known is None or not known.key_env


def _reads_secret(into: JsonPath, value: Any) -> bool:
    """Whether it reads a secret of this machine: a variable, or a reference."""
    return (isinstance(value, str) and "${" in value) or (into[3:4] != ("models",) and into[-1:] == ("source",))


def _names_model(into: JsonPath) -> bool:
    """Whether it is the model of an agent or of all agents, or the first of several."""
    path = into[:-1] if into[-1] == "primary" else into
    return path == (*DEFAULTS, "model") or (path[0] == "agents" and len(path) == 4 and path[-1] == "model")


def _is_id(into: JsonPath) -> bool:
    """The id of an agent in our list. It is always taken, because it identifies the agent."""
    return into[:2] == LISTED and into[3:] == ("id",)


def _closed_up(into: JsonPath, built: JsonPath) -> JsonPath:
    """Its path in a config that has taken it, where lists have no gaps. An agent still has the number of its slot."""
    return (*into[:3], *built[3:]) if into[:2] == LISTED else built


def _within(ours: Any, theirs: Any) -> bool:
    if ours is None:
        return True
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(_within(value, theirs.get(key)) for key, value in ours.items())
    return _equal(ours, theirs)


def _equal(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _can_be_written(setting: Setting) -> bool:
    with suppress(ValueError, RecursionError):
        text = json.dumps([setting.value, setting.into], allow_nan=False, ensure_ascii=False)
        text.encode()
        is_include = f'"{INCLUDE}"' in text  # an escaped key, which would be an include in our file
        return not is_include and len(setting.into) + _depth(setting.value) < MAX_NESTING - 4
    return False


def _depth(value: Any) -> int:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(_depth, inner), default=0)
    return 0
