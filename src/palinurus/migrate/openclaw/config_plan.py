"""What our config says when the other one has come over: the new text, and what became of every setting.

Ours wins wherever it says something. What our schema refuses costs that path alone: settings are taken out until the
rest can be used, so the result always loads. What can run a program, move a secret or loosen a rule (config/risks.py)
stays behind unless a person has named it. Nothing is written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.include import INCLUDE, MAX_BYTES
from palinurus.config.load import check_data
from palinurus.config.memory_settings import memory_complaints
from palinurus.config.merging import apply_changes, changes, merged
from palinurus.config.risks import is_loopback, risk_of
from palinurus.config.schema import Config, unknown_keys
from palinurus.config.secrets import MASK
from palinurus.config.settings import default_agent
from palinurus.config.source import MAX_NESTING, JsonPath, format_path, parse
from palinurus.migrate.foreign import ForeignAgent
from palinurus.migrate.openclaw.building import build, clashes, get, list_of, shown_paths
from palinurus.migrate.openclaw.holding import UNASKED, Moved, held_back, is_workspace, why_unused
from palinurus.migrate.openclaw.inline_secrets import holds_secret, secrets_in
from palinurus.migrate.openclaw.settings import LISTED, Roster, Setting, agent_id, as_object, settings_of
from palinurus.migrate.report import MOST_LISTED, FoundSetting, SettingOutcome
from palinurus.providers.choose import known_provider

INLINE = "a secret; `--keys` brings it"
USED = frozenset(field.alias or name for name, field in Config.model_fields.items()) | {"secrets"}
HERE = "it stands here already"
OTHER = "yours says something else"
STARTS = (("command",), ("args",), ("cwd",), ("url",), ("baseUrl",), ("endpoint",))  # where a part of it leads to
HALF = "it is of no use without the rest of it"
MOST_SHOWN = 200  # characters of a value
COPIED = "the files come to the agent's workspace in this home"


class Ours(Struct, frozen=True):
    """Our config as it is."""

    text: str  # of the file itself
    raw: dict[str, Any]  # with what it includes
    default: str  # the agent that messages without an address go to
    env: Mapping[str, str]


class ConfigPlan(Struct, frozen=True):
    text: str  # what our file is to hold
    settings: tuple[FoundSetting, ...]


def plan_config(
    data: dict[str, Any],
    agents: Sequence[ForeignAgent],
    ours: Ours,
    moved: Moved,
    *,
    keys: bool,
    allow: Sequence[str] = (),
) -> ConfigPlan:
    """`agents` are all of the other home, also those without a word in its config. `keys`: with inline secrets.

    `allow` has the paths of settings that may run programs, move secrets or loosen rules; each covers all below it.
    """
    return _Planner(data, agents, ours, moved, keys=keys, allow=frozenset(allow)).plan()


class _Planner:
    def __init__(
        self,
        data: dict[str, Any],
        agents: Sequence[ForeignAgent],
        ours: Ours,
        moved: Moved,
        *,
        keys: bool,
        allow: frozenset[str],
    ) -> None:
        self._ours = ours
        self._own = parse(ours.text)
        self._roster = Roster(self._own)
        self._folders = {agent.id: agent.workspace for agent in agents}
        self._settings = settings_of(data, self._roster, list(self._folders))
        self._redactor = secrets_in(data, self._settings)
        listed = get(ours.raw, LISTED, [])
        self._indexes = {agent_id(as_object(each).get("id")): at for at, each in enumerate(listed or [])}
        self._addable: dict[JsonPath, bool] = {}
        self._moved = moved
        self._keys = keys
        self._allow = allow

    def plan(self) -> ConfigPlan:
        given = {setting.into: setting.value for setting in self._settings}
        self._settings = [self._sorted(setting, given) for setting in self._settings]
        self._refuse(lambda tree: tree, "refused", "")
        self._without_halves()
        self._leave_unused()
        self._keep_ours()
        self._hold(given)
        self._without_halves()
        self._refuse(lambda tree: merged(self._ours.raw, tree), "kept-yours", "it does not go with yours: ")
        text = self._text()
        if len(text.encode()) > MAX_BYTES:
            self._end(lambda setting: bool(setting.source), "refused", "the config would be larger than 2 MiB")
            text = self._text()
        return ConfigPlan(text, tuple(self._told()))

    def _sorted(self, setting: Setting, given: Mapping[JsonPath, Any]) -> Setting:
        """What can be said about one by itself."""
        if setting.outcome is not None or not setting.source or _is_id(setting.into):
            return setting
        if setting.value is None or setting.value == {}:
            return setting.ends("left", "it says nothing")
        if not self._keys and holds_secret(setting, self._redactor):
            return setting.ends("secret", INLINE)
        if not _can_be_written(setting):
            return setting.ends("refused", "it cannot stand in a config")
        if is_workspace(setting.into) and isinstance(setting.value, str):
            own = self._folders.get(self._roster.agent_of(setting.into), next(iter(self._folders.values()), None))
            return setting.ends("taken", COPIED) if own else setting.ends("left", "there is no such folder")
        if setting.into[-1] == "default" and setting.into[:2] == LISTED and len(setting.into) == 4:
            return self._marked(setting)
        reason = held_back(setting, given)
        if reason == UNASKED and self._is_allowed(setting):
            reason = ""
        return setting.ends("left", reason) if reason else self._moved.setting(setting)

    def _marked(self, setting: Setting) -> Setting:
        """Who gets messages without an address is not changed by those who move in."""
        if setting.value is True and self._roster.agent_of(setting.into) != self._ours.default:
            return setting.ends("kept-yours", f"{self._ours.default} is the default agent here")
        return setting.ends("taken") if setting.value is False else setting

    def _without_halves(self) -> None:
        """A server or provider whose address did not come stays behind: its key would go to another address."""
        halves = {
            unit
            for setting in self._settings
            if setting.outcome in ("secret", "held", "refused") and (unit := _unit(setting.into))
            if setting.into[len(unit) : len(unit) + 1] in STARTS
        }
        self._end(lambda setting: _unit(setting.into) in halves, "left", HALF)

    def _hold(self, given: Mapping[JsonPath, Any]) -> None:
        """What can do harm and was not allowed by name. A model's server on this machine comes, if it gets no key of
        this machine: neither by a reference nor because it is called like a provider whose key is known by itself."""
        keyed = {into[:3] for into, value in given.items() if _names_secret(into, value)}
        for index, setting in enumerate(self._settings):
            if setting.outcome is None and setting.source and not _is_id(setting.into):
                reason = risk_of(setting.into, setting.value)
                harmless = _is_server_here(setting) and setting.into[:3] not in keyed
                if reason and not harmless and not self._is_allowed(setting):
                    self._settings[index] = setting.ends("held", reason)

    def _is_allowed(self, setting: Setting) -> bool:
        path = setting.source
        return bool(self._allow) and any(format_path(path[:size]) in self._allow for size in range(1, len(path) + 1))

    def _refuse(self, whole: Callable[[dict[str, Any]], Any], outcome: SettingOutcome, because: str) -> None:
        """Take out what makes the whole unusable."""
        while True:
            alive = [setting for setting in self._settings if setting.outcome is None]
            tree, paths = build(alive)
            data = whole(tree)
            found = check_data(data, self._ours.env)
            if isinstance(found, Config) or not alive:
                return
            wrong = {
                self._in_patch(path, data, tree): f"{because}{words.partition(', got ')[0]}"  # a value is never told
                for path, words in found.items()
            }
            hit = clashes(alive, paths, wrong)
            self._settings = [
                replace(setting, outcome=outcome, reason=hit[setting.into])
                if setting.outcome is None and setting.into in hit
                else setting
                for setting in self._settings
            ]

    def _in_patch(self, path: JsonPath, data: Any, tree: Any) -> JsonPath:
        """The path among what comes, when it leads to an agent of the whole list."""
        if path[:2] != LISTED or len(path) < 3:
            return path
        named = as_object(get(data, path[:3])).get("id")
        coming = [as_object(each).get("id") for each in get(tree, LISTED) or []]
        return (*LISTED, coming.index(named), *path[3:]) if named in coming else LISTED

    def _leave_unused(self) -> None:
        """What the schema keeps without using it. It is told at the place where that begins."""
        tree, paths = build([setting for setting in self._settings if setting.outcome is None])
        config = check_data(tree, self._ours.env)
        if not isinstance(config, Config):
            return
        unused = {path for path, _ in unknown_keys(config, foreign=True)}
        useless = dict(memory_complaints(config))  # a config of ours would be warned of it with every command
        for index, setting in enumerate(self._settings):
            built = paths.get(setting.into, setting.into)
            size = next((size for size in range(1, len(built) + 1) if built[:size] in unused), 0)
            if setting.outcome == "secret" and (size or setting.into[0] not in USED):
                self._settings[index] = setting.ends("secret", "a secret, of a part that stays behind")
            elif setting.outcome is None and size and setting.into[0] != "secrets":
                shown = setting.source[: len(setting.source) - (len(built) - size)]
                self._settings[index] = replace(setting, source=shown).ends("left", why_unused(shown))
            elif setting.outcome is None and built in useless:
                self._settings[index] = setting.ends("left", self._redactor.redact(useless[built]))

    def _keep_ours(self) -> None:
        tree, paths = build([setting for setting in self._settings if setting.outcome is None])
        for index, setting in enumerate(self._settings):
            if setting.outcome is not None or _is_id(setting.into):
                continue
            missing, same = self._here(setting.into, setting.value)
            unit = _unit(setting.into)
            if same:
                self._settings[index] = setting.ends("taken", HERE)
            elif not missing or (unit and not self._adds_to(unit, get(tree, paths[setting.into][: len(unit)]))):
                self._settings[index] = setting.ends("kept-yours", OTHER)

    def _here(self, into: JsonPath, value: Any) -> tuple[bool, bool]:
        """Whether ours says nothing at that place, and whether it says the same."""
        found = [get(self._ours.raw, place, None) for place in (self._place(into), _elsewhere(into)) if place]
        said = [each for each in found if each is not None]
        return not said and not self._blocked(into), any(_equal(each, value) for each in said)

    def _blocked(self, into: JsonPath) -> bool:
        """Whether ours has a plain value where an object would have to be."""
        place = self._place(into) or ()
        above = (get(self._ours.raw, place[:size], None) for size in range(1, len(place)))
        return any(each is not None and not isinstance(each, dict | list) for each in above)

    def _place(self, into: JsonPath) -> JsonPath | None:
        """The path in ours, where an agent of the list has an index; None when it is not there."""
        if into[:2] != LISTED:
            return into
        index = self._indexes.get(self._roster.agent_of(into))
        return None if index is None else (*LISTED, index, *into[3:])

    def _adds_to(self, unit: JsonPath, theirs: Any) -> bool:
        """Whether ours says nothing in this part that the other one does not say too."""
        if unit not in self._addable:
            place = self._place(unit)
            self._addable[unit] = place is None or _within(get(self._ours.raw, place, None), theirs)
        return self._addable[unit]

    def _end(self, which: Callable[[Setting], bool], outcome: SettingOutcome, reason: str) -> None:
        self._settings = [
            setting.ends(outcome, reason) if setting.outcome is None and which(setting) else setting
            for setting in self._settings
        ]

    def _text(self) -> str:
        patch, _ = build([setting for setting in self._settings if setting.outcome is None])
        wanted = merged(self._own, patch)
        config = check_data(merged(self._ours.raw, patch), self._ours.env)
        if isinstance(config, Config) and default_agent(config) != self._ours.default:
            mark = {"agents": {"list": [{"id": self._roster.written(self._ours.default), "default": True}]}}
            patch = merged(patch, mark)
            wanted = merged(self._own, patch)
        return apply_changes(self._ours.text, list(changes(self._own, patch)), wanted)

    def _told(self) -> Iterator[FoundSetting]:
        told = [
            setting if setting.outcome is not None else setting.ends("taken")
            for setting in self._settings
            if setting.source
        ]
        held = {setting.source: setting for setting in told if setting.outcome == "held"}  # each with its own value
        rest = shown_paths([setting for setting in told if setting.outcome != "held"])
        for path, setting in list({**held, **rest}.items())[:MOST_LISTED]:
            words = tuple(self._redactor.redact(step) if isinstance(step, str) else step for step in path)
            yield FoundSetting(format_path(words), setting.outcome or "taken", setting.reason, self._value(setting))

    def _value(self, setting: Setting) -> str:
        """What a person is shown before saying yes. ASCII, so that nothing in it moves or colours the screen."""
        if setting.outcome != "held":
            return ""
        if holds_secret(setting, self._redactor):
            return json.dumps(MASK)
        text = self._redactor.redact(json.dumps(setting.value))
        return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _unit(into: JsonPath) -> JsonPath:
    """The part that is only taken whole or added to: half of one address and half of another would send keys astray."""
    if into[:2] in (("models", "providers"), ("mcp", "servers"), ("skills", "entries")):
        return into[:3]
    if into[:2] in (("session", "resetByType"), ("session", "resetByChannel")):
        return into[:3]
    if into[:2] in (("session", "reset"), ("diagnostics", "otel"), ("skills", "registry")):
        return into[:2]
    if into[:3] == ("tools", "web", "search"):
        return into[:3]
    at = 2 if into[:2] == ("agents", "defaults") else 3
    if into[:1] == ("agents",) and into[at : at + 1] == ("model",):
        return into[: at + 1]
    listed = list_of(into)
    return listed if len(listed) < len(into) else ()


def _is_server_here(setting: Setting) -> bool:
    path = setting.into
    if path[:2] != ("models", "providers") or path[3:] != ("baseUrl",) or not is_loopback(setting.value):
        return False
    known = known_provider(str(path[2]).strip().lower())
    return known is None or not known.key_env


def _names_secret(into: JsonPath, value: Any) -> bool:
    """Whether it reads a secret of this machine: a variable, or a reference."""
    return (isinstance(value, str) and "${" in value) or (into[3:4] != ("models",) and into[-1:] == ("source",))


def _is_id(into: JsonPath) -> bool:
    """Of an agent in our list. It is what the others are found by, so it always goes along."""
    return into[:2] == LISTED and into[3:] == ("id",)


def _elsewhere(into: JsonPath) -> JsonPath | None:
    """The newer place of the same setting, which the older one would overrule."""
    return ("memory", "search", *into[3:]) if into[:3] == ("agents", "defaults", "memorySearch") else None


def _within(ours: Any, theirs: Any) -> bool:
    if ours is None:
        return True
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(_within(value, theirs.get(key)) for key, value in ours.items())
    return _equal(ours, theirs)


def _equal(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _can_be_written(setting: Setting) -> bool:
    try:
        text = json.dumps([setting.value, setting.into], allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, RecursionError):
        return False
    if f'"{INCLUDE}"' in text:  # an escaped key is none there, and would be one in our file
        return False
    return len(setting.into) + _depth(setting.value) < MAX_NESTING - 4


def _depth(value: Any) -> int:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(_depth, inner), default=0)
    return 0
