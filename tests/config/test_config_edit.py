"""Single values are changed, and every other character of the file survives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.config.agents import SessionSettings
from palinurus.config.edit import get_value, set_value, unset_value
from palinurus.config.home import Home, find_home
from palinurus.config.load import load_config
from palinurus.config.rewrite import drop, put
from palinurus.config.source import format_path, parse, scan
from palinurus.domain.errors import BadRequest, ConfigError, NotFound, StorageFull
from support import examples

TEXT = """// my config
{
  // who lives here
  agents: {
    defaults: { model: 'p/a' }, // the usual
  },
  "unknown": [1, /* two */ 2],
}
"""

ADA = '{\n        "name": "Ada"\n      }'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = find_home({"HOME": str(tmp_path), "PALINURUS_HOME": str(tmp_path)})
    home.config_path.write_text(TEXT)
    return home


@pytest.mark.parametrize(
    ("dotted", "value", "old", "new"),
    [
        ("agents.defaults.model", "p/b", "'p/a'", '"p/b"'),
        ("agents.defaults.maxConcurrent", 3, "'p/a' }", "'p/a', maxConcurrent: 3 }"),
        ("agents.entries.ada", {"name": "Ada"}, "usual\n", 'usual\n    entries: {\n      "ada": ADA\n    },\n'),
        ("unknown[2]", 3, "2],", "2, 3],"),
        ("unknown[0]", [True], "[1,", "[[\n    true\n  ],"),
        ("session.scope", "global", "2],\n}", '2],\n  "session": {\n    "scope": "global"\n  },\n}'),
    ],
)
def test_a_value_is_set_where_it_belongs(home: Home, dotted: str, value: Any, old: str, new: str) -> None:
    set_value(home, {}, dotted, value)
    assert home.config_path.read_text() == TEXT.replace(old, new.replace("ADA", ADA))
    assert get_value(load_config(home, {}), dotted) == value


@pytest.mark.parametrize(
    ("dotted", "old", "new"),
    [
        ("agents.defaults.model", "{ model: 'p/a' }", "{  }"),
        ("unknown[0]", "[1, /* two */ 2]", "[ /* two */ 2]"),
        ("unknown[1]", "[1, /* two */ 2]", "[1 /* two */ ]"),
        ("unknown", '  "unknown": [1, /* two */ 2],\n', ""),
        ("agents.defaults", "    defaults: { model: 'p/a' }, // the usual", "     // the usual"),
    ],
)
def test_a_value_is_taken_out_and_comments_stay(home: Home, dotted: str, old: str, new: str) -> None:
    unset_value(home, {}, dotted)
    assert home.config_path.read_text() == TEXT.replace(old, new)


def test_the_file_is_made_when_there_is_none(tmp_path: Path) -> None:
    home = find_home({"HOME": str(tmp_path)})
    set_value(home, {}, "session.scope", "global")
    assert home.config_path.read_text() == '{\n  "session": {\n    "scope": "global"\n  }\n}\n'
    assert home.config_path.stat().st_mode & 0o777 == 0o600
    assert home.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("dotted", "value", "error", "words"),
    [
        ("agents.defaults.maxConcurrent", "many", ConfigError, "should be a whole number"),
        ("agents.defaults.model.primary.x", 1, BadRequest, "agents.defaults.model is not an object"),
        ("unknown[7]", 1, BadRequest, "a list that is long enough"),
        ("other[1]", 1, BadRequest, "begins with"),
        ("unknown.x", 1, BadRequest, "not an object"),
        ("session.scope", float("nan"), BadRequest, "cannot be written to a config"),
        ("session.scope", "\ud800", BadRequest, "cannot be written to a config"),
        ("session..scope", 1, BadRequest, "not a path"),
    ],
)
def test_what_would_be_wrong_is_refused_and_the_file_is_untouched(
    home: Home, dotted: str, value: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        set_value(home, {}, dotted, value)
    assert home.config_path.read_text() == TEXT
    assert list(home.root.iterdir()) == [home.config_path]


def test_a_foreign_config_is_only_read(tmp_path: Path) -> None:
    foreign = tmp_path / "openclaw.json"
    foreign.write_text(TEXT)
    home = find_home({"HOME": str(tmp_path)}, config=foreign)
    for change in (lambda: set_value(home, {}, "session.scope", "global"), lambda: unset_value(home, {}, "unknown")):
        with pytest.raises(ConfigError, match="only read"):
            change()
    assert foreign.read_text() == TEXT


def test_a_value_that_is_not_set_cannot_be_got_or_unset(home: Home) -> None:
    with pytest.raises(NotFound):
        get_value(load_config(home, {}), "session.scope")
    with pytest.raises(NotFound):
        unset_value(home, {}, "session.scope")


def test_a_mistake_elsewhere_can_be_mended_by_setting(home: Home) -> None:
    home.config_path.write_text("{session: {scope: 5}}")
    set_value(home, {}, "session.scope", "global")
    assert home.config_path.read_text() == '{session: {scope: "global"}}'


def test_broken_or_ambiguous_text_is_left_for_a_person(home: Home) -> None:
    for text, words in (
        ("{a: 1", "palinurus.json:1:1"),
        ("{a: 1,\na: 2}", "palinurus.json:2: a: this key is written twice"),
        ("[]", "braces"),
    ):
        home.config_path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            set_value(home, {}, "session.scope", "global")
        assert home.config_path.read_text() == text


def test_each_write_leaves_a_backup(home: Home) -> None:
    set_value(home, {}, "session.scope", "global")
    assert (home.root / "palinurus.json.bak").read_text() == TEXT


def test_a_full_disk_leaves_the_file_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageFull, match="the disk is full"):
        set_value(home, {}, "session.scope", "global")
    assert home.config_path.read_text() == TEXT


def test_a_linked_config_stays_a_link(home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    kept = tmp_path_factory.mktemp("dotfiles") / "pal.json"
    kept.write_text("{}")
    home.config_path.unlink()
    home.config_path.symlink_to(kept)
    set_value(home, {}, "session.scope", "global")
    assert home.config_path.is_symlink()
    assert "global" in kept.read_text()


def test_what_an_included_file_says_must_be_changed_there(home: Home) -> None:
    (home.root / "more.json").write_text("{scope: 'global', resetTriggers: ['/a']}")
    home.config_path.write_text("{session: {$include: 'more.json', dmScope: 'main'}}")
    with pytest.raises(ConfigError, match="included file"):
        set_value(home, {}, "session.resetTriggers", ["/b"])
    set_value(home, {}, "session.scope", "per-sender")
    assert load_config(home, {}).config.section(SessionSettings).scope == "per-sender"
    with pytest.raises(ConfigError, match="included file"):
        unset_value(home, {}, "session.scope")


def test_secrets_are_masked_when_shown(home: Home) -> None:
    set_value(home, {}, "models.providers.x.apiKey", "hunter2-hunter2")
    loaded = load_config(home, {})
    assert get_value(loaded, "models.providers.x.apiKey") == "***"
    assert get_value(loaded, "models") == {"providers": {"x": {"apiKey": "***"}}}
    assert "hunter2-hunter2" in loaded.secrets


def test_windows_line_ends_are_kept() -> None:
    assert put('{\r\n  "a": 1\r\n}\r\n', ("b",), [1]) == '{\r\n  "a": 1,\r\n  "b": [\r\n    1\r\n  ]\r\n}\r\n'


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{ }",
        "{\n}",
        "{ /* c */ }",
        "{ // c\n}",
        "{\n // c\n}",
        "{/* a\n b */}",
        "{a: 1 /* x\n */}",
        "{a: 1, // x\n}",
        "{'a': {b: 1\n}}",
    ],
)
def test_odd_layouts_take_a_new_member(text: str) -> None:
    edited = put(text, ("new", "deep"), 1)
    assert parse(edited) == {**parse(text), "new": {"deep": 1}}
    for comment in ("/* c */", "// c", "// x", "/* a\n b */"):
        assert (comment in edited) == (comment in text)


KEYS = st.sampled_from(["a", "b", "two words", "ünï", "x.y", '"', "$c", ""])
LEAVES = st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
GAPS = ["", " ", "\n", " /* {c},[ */ ", ' // it\'s "c" }\n', "\n\t\t"]


@st.composite
def documents(draw: st.DrawFn) -> str:
    """JSON5 texts with comments and white space wherever they may stand."""

    def gap() -> str:
        return draw(st.sampled_from(GAPS))

    def write(value: Any) -> str:
        if isinstance(value, dict):
            items = [f"{gap()}{name(key)}{gap()}:{gap()}{write(item)}{gap()}" for key, item in value.items()]
            return f"{{{','.join(items)}{tail(items)}}}"
        if isinstance(value, list):
            items = [f"{gap()}{write(item)}{gap()}" for item in value]
            return f"[{','.join(items)}{tail(items)}]"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def name(key: str) -> str:
        plain = key in ("a", "b", "$c")
        return key if plain and draw(st.booleans()) else json.dumps(key)

    def tail(items: list[str]) -> str:
        return f",{gap()}" if items and draw(st.booleans()) else gap()

    return f"{gap()}{write(draw(st.dictionaries(KEYS, TREES, max_size=4)))}{gap()}"


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {found: leaf for key, item in pairs for found, leaf in leaves(item, (*path, key)).items()} or {
            path: value
        }
    return {path: value}


def comments(text: str) -> int:
    return text.count(GAPS[3].strip()) + text.count(GAPS[4].strip())


@settings(max_examples=examples(200), deadline=None)
@given(documents(), st.data())
def test_setting_gives_the_value_and_leaves_the_rest_alone(text: str, data: st.DataObject) -> None:
    before = parse(text)
    paths = [path for path in scan(text).spans if path]
    path = data.draw(st.sampled_from(paths) | st.just(("new",)) if paths else st.just(("new",)))
    if data.draw(st.booleans()) and not isinstance(read(before, path), list | int | str | bool):
        path = (*path, "n-e.w")
    value = data.draw(TREES)
    edited = put(text, path, value)
    after = parse(edited)
    assert read(after, path) == value
    untouched = {at: leaf for at, leaf in leaves(before).items() if at != path[: len(at)] and at[: len(path)] != path}
    assert {at: read(after, at) for at in untouched} == untouched
    if path not in paths:
        assert comments(edited) == comments(text)


@settings(max_examples=examples(200), deadline=None)
@given(documents(), st.data())
def test_unsetting_takes_one_value_and_leaves_the_rest_alone(text: str, data: st.DataObject) -> None:
    source = scan(text)
    members = [path for path in source.spans if path and isinstance(path[-1], str)]
    if not members:
        return
    path = data.draw(st.sampled_from(members))
    span = source.spans[path]
    edited = drop(text, path)
    after = parse(edited)
    assert read(after, path) is MISSING
    untouched = {at: leaf for at, leaf in leaves(parse(text)).items() if at[: len(path)] != path}
    assert {at: read(after, at) for at in untouched} == untouched
    assert comments(edited) == comments(text) - comments(text[span.begin : span.end])


@settings(max_examples=25, deadline=None)
@given(value=TREES, key=KEYS)
def test_set_then_get_goes_through_the_file(tmp_path_factory: pytest.TempPathFactory, value: Any, key: str) -> None:
    root = tmp_path_factory.mktemp("home")
    home = find_home({"HOME": str(root), "PALINURUS_HOME": str(root)})
    home.config_path.write_text(TEXT)
    dotted = format_path(("unknown2", key))
    set_value(home, {}, dotted, value, force=True)
    loaded = load_config(home, {})
    assert get_value(loaded, dotted) == value
    assert {**loaded.raw, "unknown2": None} == {**parse(TEXT), "unknown2": None}
    unset_value(home, {}, "unknown2")
    assert home.config_path.read_text() == TEXT


MISSING = object()


def read(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return value
