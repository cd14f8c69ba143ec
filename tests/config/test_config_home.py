"""Which home is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.config.home import find_home
from palinurus.domain.errors import BadRequest


@pytest.mark.parametrize(
    ("env", "profile", "root"),
    [
        ({"HOME": "/u"}, None, "/u/.palinurus"),
        ({"HOME": "/u"}, "work", "/u/.palinurus-work"),
        ({"HOME": "/u", "PALINURUS_PROFILE": "work"}, None, "/u/.palinurus-work"),
        ({"HOME": "/u", "PALINURUS_PROFILE": "work"}, "play", "/u/.palinurus-play"),
        ({"HOME": "/u", "PALINURUS_PROFILE": "default"}, None, "/u/.palinurus"),
        ({"HOME": "/u", "PALINURUS_HOME": "/srv/pal"}, None, "/srv/pal"),
        ({"HOME": "/u", "PALINURUS_HOME": "~/pal"}, None, "/u/pal"),
        ({"HOME": "/u", "PALINURUS_HOME": " "}, None, "/u/.palinurus"),
        ({"HOME": "/u", "PALINURUS_HOME": "undefined"}, None, "/u/.palinurus"),
        ({"HOME": "/u", "PALINURUS_HOME": "null"}, None, "/u/.palinurus"),
    ],
)
def test_the_root_comes_from_the_environment_or_the_profile(
    env: dict[str, str], profile: str | None, root: str
) -> None:
    home = find_home(env, profile=profile)
    assert home.root == Path(root)
    assert home.config_path == Path(root, "palinurus.json")
    assert home.ours


@pytest.mark.parametrize("name", ["../other", "a/b", ".hidden", "a b", "x" * 65, "-x", "a\n"])
def test_a_profile_that_could_leave_the_directory_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="profile"):
        find_home({"HOME": "/u"}, profile=name)


def test_a_config_named_by_flag_wins_over_the_environment_and_is_not_ours() -> None:
    env = {"HOME": "/u", "PALINURUS_CONFIG_PATH": "~/from-env.json"}
    assert find_home(env).config_path == Path("/u/from-env.json")
    named = find_home(env, config=Path("/other/openclaw.json"))
    assert (named.config_path, named.ours, named.root) == (Path("/other/openclaw.json"), False, Path("/u/.palinurus"))


def test_naming_our_own_config_by_a_link_leaves_it_ours(tmp_path: Path) -> None:
    (tmp_path / "palinurus.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("palinurus.json")
    assert find_home({"HOME": "/u", "PALINURUS_HOME": str(tmp_path)}, config=tmp_path / "link.json").ours


def test_a_relative_workspace_is_made_absolute_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_home({"HOME": "/u"}, workspace=Path("ws")).workspace_override == tmp_path / "ws"
