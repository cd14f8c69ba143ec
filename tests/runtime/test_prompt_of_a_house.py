"""What a model server really receives as the head: who the agent is, its skills, on what it runs, and which files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from skilled_house import Services, living

from palinurus.domain.envelope import Inbound
from palinurus.operations.runs import converse
from palinurus.operations.table import LocalCaller
from palinurus.workspace.seed import FIRST_RUN, seed_workspace, template
from support.wire import Json

SKILL = "---\nname: {name}\ndescription: Knows all about {name}.\n---\nLook at the {name}.\n"
OUTSIDE = (
    "telegram:group:7",
    "discord:channel:7",
    "cron:nightly",
    "hook:mail",
    "boot:start",
    "telegram:group:7:topic:1",
)


def system(body: Json) -> str:
    return str(body["messages"][0]["content"])


def newest(body: Json) -> str:
    return str(body["messages"][-1]["content"])


def agents(identity: dict[str, str] | None = None, **defaults: Any) -> dict[str, Any]:
    listed = [{"id": "main", "identity": identity}] if identity else []
    return {"defaults": {"model": "mine/test", **defaults}, "list": listed}


async def hears(services: Services, text: str, key: str) -> None:
    """In another session than the main one."""
    inbound = Inbound(text, f"{key} {len(services.server.requests)}", session_key=key)
    await converse(LocalCaller(services.runtime.services), inbound, lambda _: None)


def workspace(services: Services) -> Path:
    return services.home / "workspace"


# --- who the agent is ---

LOGIC = "name: Logic\nemoji: 🤖\ncreature: AI assistant\nvibe: sharp, precise\ntheme: dark\navatar: ./avatar.png\n"
TRAITS = "creature: AI assistant; vibe: sharp, precise; theme: dark; avatar: ./avatar.png"


@pytest.mark.parametrize(
    "text",
    [
        f"---\n{LOGIC}---\n",
        LOGIC,
        "# Identity\n\n" + "".join(f"- **{line.partition(':')[0].title()}:**{line.partition(':')[2]}\n"
                                    for line in LOGIC.splitlines()),
    ],
    ids=["yaml", "plain", "bold"],
)  # fmt: skip
async def test_an_identity_in_any_form_is_in_the_first_line_and_shown_as_a_file(tmp_path: Path, text: str) -> None:
    async with living(tmp_path) as services:
        (workspace(services) / "IDENTITY.md").write_text(text)
        await services.hears("hello")
        head = system(services.server.requests[0])
        assert head.splitlines()[0] == f"You are Logic 🤖 ({TRAITS}), living in Palinurus."
        assert f"## IDENTITY.md\n\n{text.strip()}" in head


async def test_the_config_wins_over_the_file_field_by_field(tmp_path: Path) -> None:
    said = {"name": "Nova", "theme": "night", "avatar": "data:image/png;base64,AAAA"}
    async with living(tmp_path, agents=agents(said)) as services:
        (workspace(services) / "IDENTITY.md").write_text("- Name: Ada\n- Emoji: 🦉\n- Avatar: me.png\n")
        await services.hears("hello")
        head = system(services.server.requests[0])
        assert head.splitlines()[0] == "You are Nova 🦉 (theme: night), living in Palinurus."


async def test_a_name_that_is_chosen_later_rides_in_the_newest_message_and_the_head_stays(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        (workspace(services) / "IDENTITY.md").write_text("- Name: (not chosen yet)\n")
        await services.hears("hello")
        (workspace(services) / "IDENTITY.md").write_text("---\nname: Ada\n---\n")
        await services.hears("you are Ada now")
        first, second = services.server.requests
        assert system(first).startswith("You are a personal assistant, living in Palinurus.")
        assert system(second) == system(first)
        assert "name: Ada" in newest(second)
        await services.hears("/new")
        await services.hears("who are you?")
        assert system(services.server.requests[-1]).startswith("You are Ada, living in Palinurus.")


async def test_an_endless_identity_costs_one_line(tmp_path: Path) -> None:
    async with living(tmp_path, agents=agents(bootstrapMaxChars=100)) as services:
        long = "".join(f"{label}: {'x ' * 50_000}\n" for label in ("name", "emoji", "creature", "vibe", "theme"))
        (workspace(services) / "IDENTITY.md").write_text(long)
        await services.hears("hello")
        assert len(system(services.server.requests[0]).splitlines()[0]) < 500


async def test_a_file_with_front_matter_and_nothing_else_leaves_a_marker(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        (workspace(services) / "SOUL.md").write_text("---\ntitle: Soul\n---\n")
        await services.hears("hello")
        assert "## SOUL.md\n\n[empty: SOUL.md has front matter and no text]" in system(services.server.requests[0])


# --- the first conversation ---


async def test_the_first_conversation_is_nobody_s_but_the_owner_s(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        seed_workspace(workspace(services), git=False)
        for key in OUTSIDE:
            await hears(services, "hello", f"agent:main:{key}")
            assert "First conversation" not in system(services.server.requests[-1]), key
        for key in ("main", "explicit:trip", "direct:alice", "dashboard:1"):
            await hears(services, "hello", f"agent:main:{key}")
            assert "First conversation" in system(services.server.requests[-1]), key


def fill_in(root: Path) -> None:
    (root / "IDENTITY.md").write_text("- Name: Ada\n- Vibe: calm\n")
    (root / "USER.md").write_text(template("USER.md").replace("- Name:", "- Name: Anna"))


async def test_once_both_know_each_other_the_first_conversation_is_over_for_good(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        root = workspace(services)
        seed_workspace(root, git=False)
        await services.hears("hello")
        (root / "IDENTITY.md").write_text("- Name: Ada\n")
        await services.hears("half of it")
        assert (root / FIRST_RUN).exists()
        fill_in(root)
        await hears(services, "and the rest", "agent:main:telegram:group:7")
        assert (root / FIRST_RUN).exists()  # it is the owner's business
        await services.hears("go on")
        assert not (root / FIRST_RUN).exists()
        (kept,) = (root / ".pal/backups" / FIRST_RUN).iterdir()
        assert kept.read_text() == template(FIRST_RUN)
        assert msgspec.json.decode((root / ".pal/workspace-state.json").read_bytes())["setupCompletedAt"].endswith("Z")
        first, last = services.server.requests[0], services.server.requests[-1]
        assert system(last) == system(first)
        assert "[removed from the workspace]" in newest(last)
        await services.hears("once more")
        assert FIRST_RUN not in newest(services.server.requests[-1])
    for path in root.glob("*.md"):
        path.unlink()
    for name in ("memory", "skills"):
        (root / name).rmdir()
    assert FIRST_RUN not in seed_workspace(root, git=False).created


async def test_a_first_conversation_that_somebody_lays_out_later_stays(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        root = workspace(services)
        fill_in(root)
        (root / FIRST_RUN).write_text("Welcome the new owner.\n")
        for name in ("IDENTITY.md", "USER.md"):
            os.utime(root / name, (1_700_000_000, 1_700_000_000))
        await services.hears("hello")
        assert "Welcome the new owner." in system(services.server.requests[0])
        fill_in(root)
        ahead = (root / FIRST_RUN).stat().st_mtime + 60
        os.utime(root / "USER.md", (ahead, ahead))
        await services.hears("done")
        assert not (root / FIRST_RUN).exists()
        (root / FIRST_RUN).write_text("Once more, with feeling.\n")
        await services.hears("hello again")
        assert "Once more, with feeling." in newest(services.server.requests[-1])


async def test_a_home_that_takes_over_a_grown_workspace_asks_no_first_questions(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        root = workspace(services)
        seed_workspace(root, git=False)
        fill_in(root)
        (root / ".openclaw").mkdir()
        (root / ".openclaw" / "workspace-state.json").write_text('{"version":1,"onboardingCompletedAt":"2026-02-01"}')
        await services.hears("hello")
        assert "First conversation" not in system(services.server.requests[0])
        assert not (root / FIRST_RUN).exists()


# --- skills ---


@pytest.mark.parametrize(
    "limits", [{"contextInjection": "never"}, {"bootstrapMaxChars": 64}, {"bootstrapTotalMaxChars": 1}]
)
async def test_no_limit_of_workspace_files_touches_the_list_of_skills(tmp_path: Path, limits: dict[str, Any]) -> None:
    async with living(tmp_path, agents=agents(**limits)) as services:
        for name in ("tides", "winds"):
            services.write(name, SKILL.format(name=name))
        await services.hears("hello")
        head = system(services.server.requests[0])
        for name in ("tides", "winds"):
            about = f"<description>Knows all about {name}.</description>"
            where = f"<location>~/home/skills/{name}/SKILL.md</location>"
            assert f"<skill><name>{name}</name>{about}{where}</skill>" in head
        assert "Left out, for want of room: Skills" not in head
        services.write("stars", SKILL.format(name="stars"))
        services.runtime.services.skills("main")._catalog._looked = -1.0  # as if a quarter of a second had passed
        await services.hears("and now")
        assert system(services.server.requests[-1]) == head
        assert "<name>stars</name>" in newest(services.server.requests[-1])


async def test_bundled_skills_come_with_description_and_path(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        await services.hears("hello")
        head = system(services.server.requests[0])
        assert "\ntranslate: Translate text or files, keeping format, names and tone.\n" in head
        (where,) = [line for line in head.splitlines() if line.startswith('<bundled location="')]
        path = where.removeprefix('<bundled location="').removesuffix('">').replace("NAME", "translate")
        assert Path(path).read_text().startswith("---\nname: translate\n")


@pytest.mark.parametrize(("key", "mode"), [("main", "minimal"), ("main", "none"), ("subagent:1", "full")])
async def test_a_minimal_prompt_has_no_skills(tmp_path: Path, key: str, mode: str) -> None:
    async with living(tmp_path, agents=agents(promptMode=mode)) as services:
        services.write("tides", SKILL.format(name="tides"))
        await hears(services, "hello", f"agent:main:{key}")
        services.write("winds", SKILL.format(name="winds"))
        services.runtime.services.skills("main")._catalog._looked = -1.0
        await hears(services, "and now", f"agent:main:{key}")
        assert len(services.server.requests) == 2
        assert "available_skills" not in str(services.server.requests)


# --- the rest ---


async def test_the_head_says_on_what_the_agent_runs_and_where_to_look_things_up(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        await services.hears("hello")
        await services.hears("again")
        first, second = services.server.requests
        *_, title, line = system(first).splitlines()
        assert title == "# Runtime"
        assert line.startswith("agent=main | pal=")
        assert line.endswith(" | model=mine/test | thinking=off")
        assert "## Documentation\n" in system(first)
        assert "`pal status`" in system(first)
        assert system(second) == system(first)
        await services.hears("/think high")
        await services.hears("and now")
        assert system(services.server.requests[-1]).endswith("model=mine/test | thinking=high")


async def test_without_commands_nobody_is_sent_to_the_command_line(tmp_path: Path) -> None:
    async with living(tmp_path, tools={"deny": ["exec"]}) as services:
        await services.hears("hello")
        assert "## Documentation" not in system(services.server.requests[0])


async def test_memory_in_small_letters_is_read_in_private_only(tmp_path: Path) -> None:
    async with living(tmp_path) as services:
        (workspace(services) / "memory.md").write_text("The boat is called Aster.\n")
        await services.hears("hello")
        await hears(services, "hello", "agent:main:telegram:group:7")
        private, group = services.server.requests
        assert "## memory.md\n\nThe boat is called Aster." in system(private)
        assert "Aster" not in str(group)
        (workspace(services) / "MEMORY.md").write_text("The boat is called Bella.\n")
        await services.hears("/new")
        await services.hears("hello")
        assert "Aster" not in system(services.server.requests[-1])
        assert "## MEMORY.md\n\nThe boat is called Bella." in system(services.server.requests[-1])
