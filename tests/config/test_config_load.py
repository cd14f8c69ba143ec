"""From files to a Config: includes, variables, errors with file, line and path, secrets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from palinurus.config.agents import SessionSettings, agent_ids, agent_settings
from palinurus.config.home import Home, find_home
from palinurus.config.load import Config, LoadedConfig, load_config, resolve_secret, secret_providers
from palinurus.config.schema import option_rows
from palinurus.config.section import SecretRef
from palinurus.domain.errors import ConfigError
from palinurus.providers.settings import ModelsOptions

Load = Callable[..., LoadedConfig]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return find_home({"HOME": str(tmp_path), "PALINURUS_HOME": str(tmp_path)})


@pytest.fixture
def load(home: Home) -> Load:
    def write_and_load(text: str, **env: str) -> LoadedConfig:
        home.config_path.write_text(text)
        return load_config(home, env)

    return write_and_load


def complaint(load: Load, text: str, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, **env)
    return caught.value.message


def test_a_missing_file_means_the_defaults(home: Home) -> None:
    loaded = load_config(home, {})
    assert loaded.config == Config()
    assert (loaded.raw, loaded.warnings, loaded.secrets, loaded.files) == ({}, (), (), ())


def test_a_missing_file_that_was_named_is_an_error(tmp_path: Path) -> None:
    home = find_home({"HOME": str(tmp_path)}, config=tmp_path / "no.json")
    with pytest.raises(ConfigError, match="no config file"):
        load_config(home, {})


@pytest.mark.parametrize(
    ("defaults", "path", "expected"),
    [
        ("bootstrapMaxChars: 'many'", "bootstrapMaxChars", 'should be a whole number, got "many"'),
        ("contextInjection: 1", "contextInjection", "should be always, continuation-skip or never, got 1"),
        ("model: 7", "model", "should be text or an object, got 7"),
        ("model: {primary: 7}", "model.primary", "should be text, got 7"),
        ("extraBootstrapFiles: ['../x']", "extraBootstrapFiles[0]", 'is not a path inside the workspace, got "../x"'),
        ("extraBootstrapFiles: 'x'", "extraBootstrapFiles", 'should be a list, got "x"'),
        ("maxConcurrent: 0", "maxConcurrent", "should be 1 or more, got 0"),
        ("skipBootstrap: 'yes'", "skipBootstrap", 'should be true or false, got "yes"'),
        ("timeoutSeconds: '9'", "timeoutSeconds", 'should be a number, got "9"'),
    ],
)
def test_a_wrong_value_is_named_by_file_line_and_path(load: Load, defaults: str, path: str, expected: str) -> None:
    message = complaint(load, f"{{\n  agents: {{\n    defaults: {{\n      {defaults},\n    }},\n  }},\n}}")
    assert message == f"palinurus.json:4: agents.defaults.{path}: {expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{agents: {\n list: [\n{name: 'x'}]}}", "palinurus.json:3: agents.list[0].id: is missing"),
        (
            "{agents: {list: [{id: 'a'}, {id: 'A'}]}}",
            'palinurus.json:1: agents.list: holds the agent a twice, got [{"id": "a"}, {"id": "A"}]',
        ),
        ("{agents: {entries: {'***': {}}}}", 'palinurus.json:1: agents.entries."***": is not an agent\'s id'),
        ("{session: {reset: {atHour: 24}}}", "palinurus.json:1: session.reset.atHour: should be 23 or less, got 24"),
        ("{agents: 3}", "palinurus.json:1: agents: should be an object, got 3"),
        ("[]", "palinurus.json:1: the config should be an object, in braces"),
        ('{\n "a": 1\n "b": 2}', "palinurus.json:3:2: a comma should stand here"),
        (
            "{models: {providers: {x: {apiKey: 123456789}}}}",
            "palinurus.json:1: models.providers.x.apiKey: should be text or an object, got ***",
        ),
    ],
)
def test_an_error_says_where_and_what(load: Load, text: str, expected: str) -> None:
    assert complaint(load, text).startswith(expected)


def test_all_errors_are_reported_one_per_line(load: Load) -> None:
    message = complaint(load, "{\nsession: {scope: 1, dmScope: 2},\nagents: {defaults: {maxConcurrent: -1}}}")
    assert [line.split(" ")[:2] for line in sorted(message.split("\n"))] == [
        ["palinurus.json:2:", "session.dmScope:"],
        ["palinurus.json:2:", "session.scope:"],
        ["palinurus.json:3:", "agents.defaults.maxConcurrent:"],
    ]


def test_an_error_shows_the_name_of_a_variable_and_not_its_value(load: Load) -> None:
    assert "hunter2" not in complaint(load, "{session: {scope: '${KEY}'}}", KEY="hunter2-hunter2")


def test_unknown_keys_are_kept_and_warned_about(load: Load) -> None:
    loaded = load("{\ncolour: 'green',\nagents: {defaults: {\nmodle: 'x/y'}}, transcripts: {path: '/x'}}")
    assert loaded.warnings == (
        "palinurus.json:2: colour: unknown key, kept but not used",
        "palinurus.json:4: agents.defaults.modle: unknown key, kept but not used; did you mean agents.defaults.model?",
    )
    assert loaded.unused == ("palinurus.json:4: transcripts: kept, and not used by this version",)
    assert loaded.raw["colour"] == "green"
    assert loaded.config.data["transcripts"] == {"path": "/x"}


def test_old_forms_are_read_and_warned_about(home: Home, load: Load) -> None:
    loaded = load("{agent: {workspace: '/w', skipBootstrap: true}, session: {mainKey: 'x'}}")
    assert len(loaded.warnings) == 2
    assert agent_settings(loaded.config, home).skip_bootstrap is True


def test_a_zone_that_nobody_knows_is_a_warning(load: Load) -> None:
    assert "Middle/Earth" in load("{agents: {defaults: {userTimezone: 'Middle/Earth'}}}").warnings[0]


# Variables


def test_variables_come_from_the_process_then_from_the_config(load: Load) -> None:
    text = """{env: {vars: {HOST: "inner", BOTH: "inner"}, OLD: "direct"},
      models: {providers: {x: {baseUrl: "http://${HOST}/${BOTH}/${OLD}/$${HOST}"}}}}"""
    loaded = load(text, BOTH="outer")
    assert loaded.config.section(ModelsOptions).providers["x"].base_url == "http://inner/outer/direct/${HOST}"
    assert loaded.raw["models"]["providers"]["x"]["baseUrl"] == "http://${HOST}/${BOTH}/${OLD}/$${HOST}"
    assert (loaded.env["HOST"], loaded.env["BOTH"]) == ("inner", "outer")


def test_a_missing_variable_is_left_and_warned_about(load: Load) -> None:
    loaded = load("{models: {providers: {x: {\napiKey: '${NO_KEY}'}}}}", NO_KEY="")
    assert loaded.warnings == ("palinurus.json:2: models.providers.x.apiKey: the variable NO_KEY is not set",)
    assert loaded.config.section(ModelsOptions).providers["x"].api_key == "${NO_KEY}"
    assert loaded.secrets == ()


def test_the_digest_follows_the_content_and_not_the_comments(load: Load) -> None:
    first = load("{session: {scope: '${S}'}}", S="global")
    assert load("{session: {scope: 'global'} /* same */}").digest == first.digest
    assert load("{session: {scope: 'per-sender'}}").digest != first.digest


# Includes


def test_included_files_are_merged_and_keys_beside_them_win(home: Home, load: Load) -> None:
    (home.root / "sub").mkdir()
    (home.root / "sub" / "a.json5").write_text("{defaults: {maxConcurrent: 2, timeoutSeconds: 5}, list: [{id: 'one'}]}")
    (home.root / "b.json5").write_text("{defaults: {timeoutSeconds: 6}, list: [{id: 'two'}]}")
    loaded = load("{agents: {$include: ['sub/a.json5', './b.json5'], defaults: {maxConcurrent: 3}}}")
    settings = agent_settings(loaded.config, home)
    assert (settings.max_concurrent, settings.timeout_seconds) == (3, 6)
    assert agent_ids(loaded.config) == ("one", "two")
    assert [path.name for path in loaded.files] == ["palinurus.json", "a.json5", "b.json5"]


def test_an_error_in_an_included_file_names_that_file(home: Home, load: Load) -> None:
    (home.root / "a.json5").write_text("[\n{id: 'one'}]")
    (home.root / "b.json5").write_text("{list: {$include: 'a.json5'}}")
    (home.root / "c.json5").write_text("{list: [\n\n{id: 'two', maxConcurrent: 'x'}]}")
    message = complaint(load, "{agents: {$include: ['b.json5', 'c.json5']}}")
    assert message == 'c.json5:3: agents.list[1].maxConcurrent: should be a whole number, got "x"'


def test_a_circle_of_includes_is_an_error(home: Home, load: Load) -> None:
    (home.root / "a.json5").write_text("{x: {$include: 'palinurus.json'}}")
    assert "includes itself" in complaint(load, "{$include: 'a.json5'}")


def test_the_same_file_may_be_included_twice(home: Home, load: Load) -> None:
    (home.root / "a.json5").write_text("{idleMinutes: 5}")
    loaded = load("{session: {resetByChannel: {x: {$include: 'a.json5'}, y: {$include: 'a.json5'}}}}")
    assert loaded.config.section(SessionSettings).reset_by_channel["y"].idle_minutes == 5


@pytest.mark.parametrize(("files", "fits"), [(10, True), (11, False)])
def test_includes_go_ten_deep(home: Home, load: Load, files: int, fits: bool) -> None:
    for index in range(1, files):
        (home.root / f"{index}.json").write_text(f"{{x: {{$include: '{index + 1}.json'}}}}")
    (home.root / f"{files}.json").write_text("{}")
    if fits:
        assert len(load("{$include: '1.json'}").files) == 11
    else:
        assert complaint(load, "{$include: '1.json'}").endswith("more than 10 deep")


def test_includes_stay_inside_the_config_directory(
    home: Home, load: Load, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.json"
    outside.write_text("{session: {scope: 'global'}}")
    (home.root / "link.json").symlink_to(outside)
    for name in (str(outside), f"../{outside.parent.name}/secret.json", "link.json"):
        assert "outside the config's directory" in complaint(load, f"{{$include: '{name}'}}")
    allowed = load(f"{{$include: '{outside}'}}", PALINURUS_INCLUDE_ROOTS=f"/nowhere:{outside.parent}")
    assert allowed.config.section(SessionSettings).scope == "global"


@pytest.mark.parametrize("include", ["3", "[]", "[1]", "''", "'missing.json'", "'a\\0b'", f"'{'x' * 5000}'"])
def test_an_include_that_makes_no_sense_is_an_error_with_its_line(load: Load, include: str) -> None:
    assert complaint(load, f"{{session:\n{{$include: {include}}}}}").startswith("palinurus.json:2: $include: ")


# Files that cannot be a config


def test_what_is_no_readable_text_file_is_refused(home: Home) -> None:
    path = home.config_path

    def refused() -> str:
        with pytest.raises(ConfigError) as caught:
            load_config(home, {})
        return caught.value.message

    path.mkdir()
    assert "is not a regular file" in refused()
    path.rmdir()
    os.mkfifo(path)
    assert "is not a regular file" in refused()
    path.unlink()
    path.symlink_to(path.name)
    assert "cannot be read: too many levels of symbolic links" in refused()
    path.unlink()
    path.write_bytes(b"{\n a: '\xff'}")
    assert refused() == f"{path}:2: is not UTF-8 text"
    path.write_bytes(b" " * (2 * 1024 * 1024) + b"{}")
    assert "larger than 2 MiB" in refused()


# Secrets


def test_secrets_are_collected_by_name_wherever_they_stand(load: Load) -> None:
    text = """{
      models: {providers: {x: {apiKey: "${KEY}", headers: {Authorization: "Bearer header-secret"},
               models: [{id: "m", maxTokens: 100}]},
               local: {apiKey: "lm-studio"}, ref: {apiKey: {source: "env", id: "OTHER"}}}},
      channels: {telegram: {botToken: "12345:token", tokenFile: "/path/to/token", short: "x"}},
      gateway: {auth: {mode: "token", password: "long-password", token: "short"}},
    }"""
    loaded = load(text, KEY="key-from-env", OTHER="other-from-env", OPENAI_API_KEY="sk-implicit", EDITOR="longer-name")
    assert loaded.secrets == (
        "12345:token",
        "header-secret",
        "key-from-env",
        "long-password",
        "other-from-env",
        "sk-implicit",
    )


def test_a_secret_reference_is_followed(home: Home, load: Load) -> None:
    single, many = home.root / "one", home.root / "many.json"
    single.write_text("from-file\n")
    many.write_text('{"providers": {"x/y": {"key": "from-json"}}}')
    loaded = load(f"{{secrets: {{providers: {{vault: {{source: 'file', path: '{many}', mode: 'json'}}}}}}}}")
    providers = secret_providers(loaded)

    def ref(source: str, place: str, provider: str | None = None) -> SecretRef:
        return msgspec.convert({"source": source, "id": place, "provider": provider}, SecretRef)

    assert resolve_secret("plain", {}) == "plain"
    assert resolve_secret("${UNSET}", {}) is None
    assert resolve_secret(None, {}) is None
    assert resolve_secret(ref("env", "A"), {"A": "a"}) == "a"
    assert resolve_secret(ref("env", "A"), {"A": ""}) is None
    assert resolve_secret(ref("file", str(single)), {}) == "from-file"
    assert resolve_secret(ref("file", "~/one"), {"HOME": str(home.root)}) == "from-file"
    assert resolve_secret(ref("file", "/providers/x~1y/key", "vault"), {}, providers) == "from-json"
    assert resolve_secret(ref("file", "/providers/none", "vault"), {}, providers) is None
    with pytest.raises(ConfigError, match="no file of secrets"):
        resolve_secret(ref("file", "/nowhere/at/all"), {})
    with pytest.raises(ConfigError, match="exec"):
        resolve_secret(ref("exec", "x"), {})


def test_a_reference_that_cannot_be_followed_is_a_warning_at_load(load: Load) -> None:
    loaded = load("{models: {providers: {x: {apiKey: {source: 'file', id: '/nowhere/at/all'}}}}}")
    assert "no file of secrets /nowhere/at/all" in loaded.warnings[0]


# Real configs, and the schema


@pytest.mark.parametrize(
    ("fixture", "agents"),
    [
        ("openclaw-a", ("main", "ledger")),
        ("openclaw-b", ("main", "weather", "seedbank")),
        ("openclaw-c", ("main", "proto", "print")),
        ("seed-flat", ("main",)),
    ],
)
def test_a_real_openclaw_config_is_read_without_a_warning_but_for_what_we_lack(
    tmp_path: Path, fixture: str, agents: tuple[str, ...]
) -> None:
    fixtures = os.environ.get("FIXTURES")
    if not fixtures:
        pytest.skip("FIXTURES does not name the OpenClaw homes")
    home = find_home({"HOME": str(tmp_path)}, config=Path(fixtures, fixture, "home", "openclaw.json"))
    loaded = load_config(home, {})
    assert [line for line in loaded.warnings if "makes no vectors here yet" not in line] == []
    assert agent_ids(loaded.config) == agents
    assert {agent_settings(loaded.config, home, agent).agent_id for agent in agents} == set(agents)


def test_every_option_has_a_description() -> None:
    rows = list(option_rows())
    assert len(rows) > 200
    assert [path for path, node in rows if not node.about] == []
