"""What the page asks for besides talking: keys, models, older words, marks, a config that is tried before saving."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest
from family_asking import Asking

from palinurus.dispatch.commands import SLASH_WORDS
from palinurus.domain.errors import BadRequest, ConfigError, NotFound
from palinurus.gateway.protocol import Refused
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skills import look_around, open_skills

MAIN = "agent:main:main"
KEY = "sk-page-0123456789abcdef"


async def test_a_key_is_stored_listed_without_its_secret_and_forgotten(ask: Asking) -> None:
    done = await ask("credentials.set", provider="OpenAI", secret=f" {KEY}\n")
    known = {"id": "openai:default", "provider": "openai", "replaced": False, "sealed": False, "ok": True}
    assert known.items() <= done.items()
    assert KEY not in json.dumps(done)
    file = ask.home.root / "credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["profiles"]["openai:default"]["key"] == KEY
    listed = await ask("credentials.list")
    assert [known["id"] for known in listed["credentials"]] == ["openai:default"]
    assert KEY not in json.dumps(listed)
    assert (await ask("credentials.set", provider="openai", secret=KEY))["replaced"]
    gone = await ask("credentials.remove", id="openai:default")
    assert (gone["id"], gone["ok"]) == ("openai:default", True)
    assert KEY not in file.read_text()
    with pytest.raises(NotFound):
        await ask("credentials.remove", id="openai:default")


@pytest.mark.parametrize("wrong", [{"provider": "../x"}, {"secret": "with a space"}, {"secret": "ü"}, {"name": "a/b"}])
async def test_a_key_that_is_none_is_refused_and_never_quoted(ask: Asking, wrong: dict[str, str]) -> None:
    with pytest.raises(BadRequest) as refused:
        await ask("credentials.set", **({"provider": "openai", "secret": KEY} | wrong))
    assert KEY not in str(refused.value)
    assert not (ask.home.root / "credentials.json").exists()


async def test_what_a_newcomer_can_choose_from_is_told(ask: Asking) -> None:
    told = await ask("onboarding.look")
    known = {row["provider"]: row for row in told["providers"]}
    assert not known["openai"]["hasKey"]
    await ask("credentials.set", provider="openai", secret=KEY)
    told = await ask("onboarding.look")
    assert {row["provider"]: row["hasKey"] for row in told["providers"]}["openai"]
    assert told["firstModel"].startswith("openai/")


async def test_the_model_of_all_agents_is_chosen_and_given_back(ask: Asking) -> None:
    assert (await ask("models.set", model="openai/gpt-5"))["model"] == "openai/gpt-5"
    config = (await ask("config.get"))["config"]
    assert config["agents"]["defaults"]["model"] == "openai/gpt-5"
    assert config["agents"]["defaults"]["workspace"]
    assert (await ask("models.set", model=""))["model"] == ""
    assert "model" not in (await ask("config.get"))["config"]["agents"]["defaults"]
    with pytest.raises(BadRequest):
        await ask("models.set", model="nobody/knows")


async def test_a_listed_model_has_its_price(ask: Asking) -> None:
    models = (await ask("models.list", view="all"))["models"]
    assert {model["id"]: model.get("cost") for model in models}["gpt-5"]["input"] > 0


async def test_older_words_are_read_page_by_page(ask: Asking) -> None:
    for number in range(6):
        await ask.pal.hears(f"message {number}")
    newest = await ask("chat.history", sessionKey=MAIN, limit=5)
    assert newest["hasMore"]
    seen = newest["messages"]
    while True:
        page = await ask("chat.history", sessionKey=MAIN, limit=5, before=seen[0]["id"])
        seen = page["messages"] + seen
        if not page["hasMore"]:
            break
    said = [message["content"][0]["text"] for message in seen if message["role"] == "user"]
    assert said == [f"message {number}" for number in range(6)]
    assert len({message["id"] for message in seen}) == len(seen) == 12
    assert (await ask("chat.history", sessionKey=MAIN, before=seen[0]["id"]))["messages"] == []
    with pytest.raises(NotFound):
        await ask("chat.history", sessionKey=MAIN, before="nothing")


async def test_words_around_a_message_are_read_and_from_there_on_in_both_directions(ask: Asking) -> None:
    for number in range(6):
        await ask.pal.hears(f"message {number}")
    (hit,) = (await ask("sessions.search", query='"message 2"'))["hits"][:1]
    page = await ask("chat.history", sessionKey=MAIN, around=hit["entryId"], limit=4)
    assert hit["entryId"] in [message["id"] for message in page["messages"]]
    assert (page["hasMore"], page["hasNewer"], page["ended"]) == (True, True, False)
    seen = page["messages"]
    while page["hasNewer"]:
        page = await ask("chat.history", sessionKey=MAIN, after=seen[-1]["id"], limit=3)
        seen += page["messages"]
    page = await ask("chat.history", sessionKey=MAIN, before=seen[0]["id"])
    assert (page["hasMore"], page["hasNewer"]) == (False, True)
    seen = page["messages"] + seen
    assert seen == (await ask("chat.history", sessionKey=MAIN))["messages"]


async def test_words_of_a_conversation_that_has_ended_are_read_around_a_hit(ask: Asking) -> None:
    await ask.pal.hears("the heron stood still")
    await ask("sessions.delete", key=MAIN)
    await ask.pal.hears("another day")
    (hit,) = (await ask("sessions.search", query="heron stood"))["hits"][:1]
    page = await ask("chat.history", sessionKey=MAIN, around=hit["entryId"])
    assert page["messages"][0]["id"] == hit["entryId"]
    assert (page["ended"], page["sessionId"]) == (True, hit["sessionId"])
    assert "heron" not in str((await ask("chat.history", sessionKey=MAIN))["messages"])
    with pytest.raises(NotFound):
        await ask("chat.history", sessionKey="agent:main:direct:ann", around=hit["entryId"])


async def test_marks_say_where_the_view_of_the_model_begins_anew(ask: Asking) -> None:
    await ask.pal.hears("before")
    await ask("sessions.reset", key=MAIN)
    await ask.pal.hears("after")
    roles = [message["role"] for message in (await ask("chat.history", sessionKey=MAIN, marks=True))["messages"]]
    assert roles == ["user", "assistant", "mark", "user", "assistant"]
    plain = (await ask("chat.history", sessionKey=MAIN))["messages"]
    assert "mark" not in {message["role"] for message in plain}
    mark = (await ask("chat.history", sessionKey=MAIN, marks=True))["messages"][2]
    assert (mark["kind"], mark["timestamp"] > 0) == ("reset", True)


async def test_the_words_behind_a_slash_are_listed(ask: Asking) -> None:
    listed = {command["name"]: command for command in (await ask("commands.list"))["commands"]}
    assert {"new", "compact", "stop", "model", "think"} <= set(listed)
    assert listed["compact"]["words"] == "/compact [focus]"
    assert "skill" not in listed  # a house without skills


async def test_skills_that_people_may_call_are_listed_behind_the_slash_too(ask: Asking, tmp_path: Path) -> None:
    for name, more in (("Tide Table", ""), ("for-models", "user-invocable: false\n"), ("model", "")):
        folder = tmp_path / "shelf" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does it.\n{more}---\nDo it.\n")
    settings = SkillsSettings(extra_dirs=(tmp_path / "shelf",), allow_bundled=())
    shelf = open_skills(ask.home, tmp_path, settings, look_around(ask.home, {}), taken=SLASH_WORDS)
    ask.desk = msgspec.structs.replace(ask.desk, services=ask.desk.services.replace(skills=lambda _: shelf))
    listed = {command["name"]: command for command in (await ask("commands.list"))["commands"]}
    assert listed["tide_table"] == {
        "name": "tide_table", "words": "/tide_table [words]", "meaning": "Does it.", "skill": "Tide Table",
    }  # fmt: skip
    assert listed["model_2"]["skill"] == "model"
    assert listed["skill"]["words"] == "/skill NAME [words]"
    assert "for_models" not in listed


async def test_a_patch_can_be_tried_without_being_written(ask: Asking) -> None:
    before = ask.home.config_path.read_text()
    base = (await ask("config.get"))["hash"]
    patch = {"baseHash": base, "dryRun": True}
    tried = await ask("config.patch", raw='{"session": {"scope": "global"}}', **patch)
    assert (tried["ok"], tried["config"]["session"]["scope"]) == (True, "global")
    with pytest.raises(ConfigError):
        await ask("config.patch", raw='{"session": {"scope": "nonsense"}}', **patch)
    with pytest.raises(Refused):
        await ask("config.patch", raw='{"gateway": {"bind": "lan"}}', **patch)
    assert ask.home.config_path.read_text() == before


async def test_the_schema_says_what_no_call_may_change(ask: Asking) -> None:
    hints = (await ask("config.schema"))["uiHints"]
    assert hints["gateway"]["readOnly"]
    assert "come in" in hints["gateway"]["reason"]
    assert hints["agents.entries.*.workspace"]["reason"]
    assert "command" in hints["*names*"]["pattern"]


async def test_use_is_told_by_day_and_model(ask: Asking) -> None:
    assert await ask("usage.series") == {"days": []}


async def test_the_context_tells_what_is_cacheable_and_who_said_how_much(ask: Asking) -> None:
    await ask.pal.hears("hello there")
    told = await ask("context.show", sessionKey=MAIN)
    assert {part["name"] for part in told["said"]} >= {"you", "agent"}
    assert told["cacheableTokens"] > 0
    assert told["price"] is None
