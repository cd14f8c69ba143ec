"""Secrets of a config are shown as marks, and a mark that comes back keeps its own secret or is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.config.rewrite import with_values
from palinurus.config.secrets import MASK, Redactor, hidden, hide, restore
from palinurus.domain.errors import BadRequest

REDACT = Redactor(["a-configured-secret"]).redact
CONFIG: dict[str, Any] = {
    "models": {"providers": {"x": {"apiKey": "k1", "baseUrl": "http://x", "headers": {"Authorization": "Bearer k2"}}}},
    "env": {"vars": {"OPENAI_API_KEY": "k3", "HOME": "/home/alice"}},
    "gateway": {"auth": {"token": "${TOKEN}"}},
    "list": [{"id": "a", "token": "k4"}, {"id": "b", "token": "k5"}],
    "plain": ["one", {"password": "k6", "name": "n"}],
    "url": "https://alice:a-configured-secret@host",
    "tokenFile": "/run/token",
}


def restored(sent: Any, old: Any = CONFIG) -> Any:
    return with_values(sent, restore(sent, old, REDACT))


def test_what_stands_under_a_secret_s_name_or_looks_like_one_is_hidden() -> None:
    shown = hide(CONFIG, REDACT)
    assert not any(f"k{number}" in str(shown) for number in range(1, 7))
    assert "a-configured-secret" not in str(shown)
    assert shown["gateway"]["auth"]["token"] == "${TOKEN}"
    assert shown["tokenFile"] == "/run/token"
    assert shown["env"]["vars"] == {"OPENAI_API_KEY": MASK, "HOME": "/home/alice"}
    assert len(list(hidden(CONFIG, REDACT))) == 7


def test_what_was_shown_comes_back_as_it_was() -> None:
    assert restored(hide(CONFIG, REDACT)) == CONFIG


def test_a_secret_follows_its_id_and_not_its_place() -> None:
    sent = {"list": [{"id": "b", "token": MASK, "more": 1}, {"id": "c", "token": "new"}]}
    assert restored(sent)["list"] == [{"id": "b", "token": "k5", "more": 1}, {"id": "c", "token": "new"}]


def test_openclaw_s_mark_is_understood() -> None:
    sent = {"models": {"providers": {"x": {"apiKey": "__OPENCLAW_REDACTED__"}}}}
    assert restored(sent)["models"]["providers"]["x"]["apiKey"] == "k1"


@pytest.mark.parametrize(
    "sent",
    [
        {"models": {"providers": {"other": {"apiKey": MASK}}}},  # another provider has no secret to keep
        {"list": [{"id": "z", "token": MASK}]},
        {"list": [{"token": MASK}]},  # whose?
        {"plain": [{"password": MASK, "name": "somebody else"}]},
        {"new": MASK},
    ],
)
def test_a_mark_without_a_secret_of_its_own_is_refused(sent: Any) -> None:
    with pytest.raises(BadRequest, match="no earlier value"):
        restored(sent)


names = st.sampled_from(["token", "password", "apiKey", "name", "id", "x", "secretRef"])
configs = st.dictionaries(
    names,
    st.recursive(
        st.text(max_size=8) | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=10,
    ),
    max_size=4,
)


@given(config=configs)
def test_nothing_hidden_is_shown_and_all_of_it_comes_back(config: dict[str, Any]) -> None:
    shown = hide(config, REDACT)
    assert list(hidden(shown, REDACT)) == list(hidden(config, REDACT))
    try:
        assert restored(shown, config) == config
    except BadRequest:  # two elements of a list that differ in their secrets only, or share an id: nobody can tell
        assert "[" in str(config)
