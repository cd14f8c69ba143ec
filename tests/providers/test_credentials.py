"""Where keys come from, whom they outrank, and that the file which holds them is kept well."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import Home
from palinurus.config.load import load_text
from palinurus.domain.errors import BadRequest, ConfigError, NotFound, StorageError
from palinurus.providers.keys.credential_file import PASSPHRASE_ENV, CredentialFile
from palinurus.providers.keys.credentials import Credentials, gather_credentials, read_keychain, write_keychain

VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
KEY = {"type": "api_key", "provider": "openai", "key": "key-from-the-file"}


def gather(
    root: Path, config: dict[str, Any] | None = None, env: dict[str, str] | None = None, agent: str = "main"
) -> Credentials:
    home = Home(root, root / "palinurus.json", user_home=root)
    loaded = load_text(home, {"HOME": str(root), **(env or {})}, json.dumps(config or {}))
    return gather_credentials(loaded, home, agent, VARIABLES)


def write(path: Path, profiles: dict[str, Any], **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 1, "profiles": profiles, **more}))
    path.chmod(0o600)


def test_config_outranks_the_file_and_the_file_outranks_the_environment(tmp_path: Path) -> None:
    write(tmp_path / "credentials.json", {"openai:work": KEY})
    config = {"models": {"providers": {"openai": {"apiKey": "key-from-config"}}}}
    found = gather(tmp_path, config, {"OPENAI_API_KEY": "key-from-environment"})
    assert [(known.id, known.source) for known in found.of("openai")] == [
        ("openai:config", "config"),
        ("openai:work", "file"),
        ("openai:env", "environment"),
    ]
    assert {"key-from-config", "key-from-the-file", "key-from-environment"} <= set(found.secrets)


def test_one_secret_in_two_places_counts_once_where_it_is_trusted_most(tmp_path: Path) -> None:
    write(tmp_path / "credentials.json", {"openai:work": KEY})
    found = gather(tmp_path, env={"OPENAI_API_KEY": KEY["key"]})
    assert [known.source for known in found.known] == ["file"]


@pytest.mark.parametrize("named", ["own", "~/own"])
def test_an_agent_dir_holds_the_agents_own_keys_and_the_others_do_not_read_it(tmp_path: Path, named: str) -> None:
    write(tmp_path / "credentials.json", {"openai:home": {**KEY, "key": "key-of-all"}})
    write(tmp_path / "own" / "credentials.json", {"openai:work": KEY})
    config = {"agents": {"entries": {"main": {}, "coder": {"agentDir": named}}}}
    assert [known.id for known in gather(tmp_path, config, agent="coder").known] == ["openai:work", "openai:home"]
    assert [known.id for known in gather(tmp_path, config).known] == ["openai:home"]


def test_an_agents_own_file_goes_before_the_main_agents_which_is_its_fallback(tmp_path: Path) -> None:
    write(tmp_path / "credentials.json", {"openai:work": KEY, "openai:home": {**KEY, "key": "main-agents-home-key"}})
    write(tmp_path / "agents" / "coder" / "credentials.json", {"openai:work": {**KEY, "key": "coders-own-key"}})
    found = gather(tmp_path, agent="coder")
    assert [(known.id, known.secret) for known in found.known] == [
        ("openai:work", "coders-own-key"),
        ("openai:home", "main-agents-home-key"),
    ]
    assert [known.secret for known in gather(tmp_path).known] == ["key-from-the-file", "main-agents-home-key"]


def test_openclaws_three_kinds_of_profiles_are_read(tmp_path: Path) -> None:
    write(
        tmp_path / "credentials.json",
        {
            "anthropic:me@example.com": {
                "type": "oauth",
                "provider": "anthropic",
                "access": "access-token-1",
                "refresh": "refresh-token-1",
                "expires": 5,
            },
            "anthropic:setup": {"type": "token", "provider": "anthropic", "token": "setup-token-1"},
            "openai:ref": {"type": "api_key", "provider": "openai", "keyRef": {"source": "env", "id": "MY_KEY"}},
        },
        order={"anthropic": ["anthropic:setup"]},
    )
    found = gather(tmp_path, env={"MY_KEY": "key-behind-a-reference"})
    assert [(known.kind, known.secret, known.expires_at) for known in found.known] == [
        ("oauth", "access-token-1", 5),
        ("token", "setup-token-1", None),
        ("api_key", "key-behind-a-reference", None),
    ]
    assert found.order == {"anthropic": ("anthropic:setup",)}
    assert "refresh-token-1" in found.secrets


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({"type": "magic", "provider": "openai"}, "unknown type"),
        ({"type": "api_key", "provider": "openai"}, "its key was not found"),
        ({"type": "api_key", "provider": "openai", "keyRef": {"source": "moon", "id": "x"}}, "unknown kind of key"),
        ({"type": "api_key", "provider": "openai", "keyRef": {"source": "exec", "id": "x"}}, "cannot be read here"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line_and_spoils_no_other(
    tmp_path: Path, profile: dict[str, Any], said: str
) -> None:
    write(tmp_path / "credentials.json", {"openai:odd": profile, "openai:good": KEY})
    found = gather(tmp_path)
    assert [known.id for known in found.known] == ["openai:good"]
    assert len(found.troubles) == 1
    assert said in found.troubles[0]


def test_a_file_that_others_can_read_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "credentials.json", {"openai:work": KEY})
    (tmp_path / "credentials.json").chmod(0o644)
    assert "mode 644" in gather(tmp_path).troubles[0]


@pytest.mark.parametrize("text", ["{", "[]", '"secret-in-a-broken-file'])
def test_a_broken_file_is_one_line_that_quotes_nothing_of_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "credentials.json").write_text(text)
    (trouble,) = gather(tmp_path).troubles[:1]
    assert "credentials.json" in trouble
    assert "secret-in-a-broken-file" not in trouble


def test_the_repr_of_a_credential_holds_no_secret(tmp_path: Path) -> None:
    write(tmp_path / "credentials.json", {"openai:work": KEY})
    assert KEY["key"] not in repr(gather(tmp_path).known)


def test_writing_keeps_what_we_do_not_know_and_leaves_a_file_of_mode_600(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    write(path, {"openai:work": {**KEY, "email": "a@example.com"}}, usageStats={"openai:work": {"errorCount": 2}})
    path.chmod(0o644)
    file = CredentialFile(path)
    assert file.add("openai:work", {"type": "api_key", "provider": "openai", "key": "new-key"})
    assert not file.add("groq:default", {"type": "api_key", "provider": "groq", "key": "groq-key"})
    content = json.loads(path.read_text())
    assert content["usageStats"] == {"openai:work": {"errorCount": 2}}
    assert content["profiles"]["openai:work"] == {**KEY, "email": "a@example.com", "key": "new-key"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(item.name for item in tmp_path.iterdir()) == ["credentials.json", "credentials.lock"]


def test_removing_takes_the_secret_off_the_disk_and_removing_nothing_says_so(tmp_path: Path) -> None:
    file = CredentialFile(tmp_path / "credentials.json")
    file.add("openai:work", KEY)
    assert file.remove("openai:work") == KEY
    assert KEY["key"] not in (tmp_path / "credentials.json").read_text()
    with pytest.raises(NotFound):
        file.remove("openai:work")


@pytest.mark.parametrize("profile_id", ["openai", "openai:", ":x", "a/b:c", "openai:a/b", "openai:" + "x" * 200])
def test_an_id_that_is_none_is_refused(tmp_path: Path, profile_id: str) -> None:
    with pytest.raises(BadRequest):
        CredentialFile(tmp_path / "credentials.json").add(profile_id, KEY)


class TestSealed:
    @pytest.fixture(autouse=True)
    def _cryptography(self) -> None:
        pytest.importorskip("cryptography")

    def test_a_sealed_file_shows_nothing_and_opens_with_its_passphrase(self, tmp_path: Path) -> None:
        file = CredentialFile(tmp_path / "credentials.json", "open sesame")
        file.add("openai:work", KEY)
        assert KEY["key"] not in file.path.read_text()
        assert "openai:work" not in file.path.read_text()
        found = gather(tmp_path, env={PASSPHRASE_ENV: "open sesame"})
        assert [known.secret for known in found.known] == [KEY["key"]]
        assert "open sesame" in found.secrets

    def test_a_plain_file_is_sealed_by_the_next_write(self, tmp_path: Path) -> None:
        CredentialFile(tmp_path / "credentials.json").add("openai:work", KEY)
        CredentialFile(tmp_path / "credentials.json", "open sesame").add("openai:home", {**KEY, "key": "other-key"})
        assert KEY["key"] not in (tmp_path / "credentials.json").read_text()
        assert set(CredentialFile(tmp_path / "credentials.json", "open sesame").read()["profiles"]) == {
            "openai:work",
            "openai:home",
        }

    @pytest.mark.parametrize(("passphrase", "said"), [("wrong", "does not open"), ("", "is encrypted")])
    def test_a_wrong_or_missing_passphrase_is_one_clear_line(self, tmp_path: Path, passphrase: str, said: str) -> None:
        CredentialFile(tmp_path / "credentials.json", "open sesame").add("openai:work", KEY)
        with pytest.raises(ConfigError, match=said) as caught:
            CredentialFile(tmp_path / "credentials.json", passphrase).read()
        assert PASSPHRASE_ENV in caught.value.hint
        assert "\n" not in str(caught.value)
        assert gather(tmp_path, env={PASSPHRASE_ENV: passphrase}).known == ()

    @pytest.mark.parametrize(
        "change", [{"n": 2**40}, {"n": 1000}, {"kdf": "none"}, {"salt": "!"}, {"r": 10**6}, {"data": None}]
    )
    def test_a_box_that_asks_for_the_impossible_is_refused(self, tmp_path: Path, change: dict[str, Any]) -> None:
        file = CredentialFile(tmp_path / "credentials.json", "open sesame")
        file.add("openai:work", KEY)
        content = json.loads(file.path.read_text())
        content["sealed"] |= change
        file.path.write_text(json.dumps(content))
        with pytest.raises(ConfigError, match="does not know"):
            file.read()


def test_without_the_package_sealing_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigError, match="not installed"):
        CredentialFile(tmp_path / "credentials.json", "open sesame").add("openai:work", KEY)
    assert not (tmp_path / "credentials.json").exists()


class TestKeychain:
    @pytest.fixture
    def keychain(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        """A keychain in memory behind the real package."""
        keyring = pytest.importorskip("keyring")
        from keyring.backend import KeyringBackend

        kept: dict[str, str] = {}

        class InMemory(KeyringBackend):
            priority = 1.0  # type: ignore[assignment]

            def get_password(self, service: str, username: str) -> str | None:
                return kept.get(username)

            def set_password(self, service: str, username: str, password: str) -> None:
                kept[username] = password

            def delete_password(self, service: str, username: str) -> None:
                del kept[username]

        before = keyring.get_keyring()
        keyring.set_keyring(InMemory())
        monkeypatch.setattr(keyring, "set_keyring", lambda _: None)
        yield kept
        monkeypatch.undo()
        keyring.set_keyring(before)

    def test_a_profile_may_point_to_the_keychain(self, tmp_path: Path, keychain: dict[str, str]) -> None:
        write_keychain("openai:work", "key-of-the-keychain")
        pointing = {"type": "api_key", "provider": "openai", "keyRef": {"source": "keyring", "id": "openai:work"}}
        write(tmp_path / "credentials.json", {"openai:work": pointing})
        (known,) = gather(tmp_path).known
        assert (known.secret, known.source) == ("key-of-the-keychain", "keychain")
        assert "key-of-the-keychain" in gather(tmp_path).secrets

    def test_a_machine_without_a_keychain_reads_nothing_and_says_why_it_cannot_write(self) -> None:
        keyring = pytest.importorskip("keyring")
        from keyring.backends import fail

        before = keyring.get_keyring()
        keyring.set_keyring(fail.Keyring())
        try:
            assert read_keychain("openai:work") is None
            with pytest.raises(StorageError, match="cannot be used"):
                write_keychain("openai:work", "key")
        finally:
            keyring.set_keyring(before)
