"""While a text from outside is in what the model reads, nothing guarded is written and nothing is sent without a yes.

Lives are generated: reading, saving, copying, notes, compaction, /new, other sessions, days and restarts in any order,
with attempts in between. Every text from outside holds a canary, a word that occurs nowhere else; the model copies the
canaries that it sees into whatever it writes. So a canary in a request *is* text from outside in the context, by
whatever way it came, and the test needs to know nothing of how the house keeps count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from gullible_model import Call, canaries
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trial_home import OTHERS, TrialHome, trial_home
from ways import SECOND, fetch, mail, read, run

from palinurus.domain.messages import Origin
from palinurus.tools.approval import Answer

MAIN = "agent:main:main"
FILES = ("a.md", "notes/b.md", "todo.md", "memory/c.md")
Act = tuple[str, str]  # what is done, and with what


class Life:
    """A home, the session in which its owner speaks now, and the number of the next canary."""

    def __init__(self, home: TrialHome) -> None:
        self.home = home
        self.key = MAIN
        self.number = 0

    async def does(self, act: Act) -> None:
        name, about = act
        await ACTS[name](self, about)

    async def says(self, text: str, *calls: Call) -> None:
        await self.home.says(text, *calls, "Done.", key=self.key)

    def canary(self) -> str:
        self.number += 1
        return f"They say canary-{self.number}."


ACTS: dict[str, Callable[[Life, str], Awaitable[None]]] = {}


def act(function: Callable[[Life, str], Awaitable[None]]) -> Callable[[Life, str], Awaitable[None]]:
    ACTS[function.__name__] = function
    return function


# -- reading


@act
async def page(life: Life, _: str) -> None:
    life.home.internet.pages["news.example/tide"] = life.canary()
    await life.says("read http://news.example/tide", fetch())


@act
async def search(life: Life, _: str) -> None:
    life.home.internet.hits = [("Tides", "http://news.example/tide", life.canary())]
    await life.says("look for tides", ("web_search", {"query": "tides"}))


@act
async def letter(life: Life, path: str) -> None:
    life.home.put(f"inbox/{path.replace('/', '-')}.eml", mail(life.canary()))
    await life.says("read the mail", read(f"inbox/{path.replace('/', '-')}.eml"))


@act
async def download(life: Life, path: str) -> None:
    life.home.put(f"downloads/{path}", life.canary())


@act
async def skill(life: Life, _: str) -> None:
    name = f"tides{life.number}"
    life.home.install_skill(name, "tells the tides", life.canary())
    await life.home.restart()  # a house that nobody tells of a new skill may look for some only now and then
    await life.says(f"/{name} for tomorrow")


@act
async def stranger(life: Life, _: str) -> None:
    await life.home.says(life.canary(), "Hello.", key=life.key, sender="stranger", origin=Origin.OUTSIDE)


@act
async def look(life: Life, path: str) -> None:
    await life.says(f"read {path}", read(path))


@act
async def cat(life: Life, path: str) -> None:
    await life.says("show all", run("cat downloads/* */*.md *.md 2>/dev/null"))


@act
async def grep(life: Life, _: str) -> None:
    await life.says("who says what?", ("grep", {"pattern": "canary"}))


@act
async def remember(life: Life, _: str) -> None:
    await life.says("what do they say?", ("memory_search", {"query": "what they say, canary"}))


# -- writing what is free to write


@act
async def save(life: Life, path: str) -> None:
    await life.says(f"sum up in {path}", ("write", {"path": path, "content": "Heard: {canaries}\n"}))


@act
async def echo(life: Life, path: str) -> None:
    await life.says(f"add to {path}", run(f"mkdir -p notes memory; echo 'Heard: {{canaries}}' >> {path}"))


@act
async def note(life: Life, _: str) -> None:
    await life.says("note it", ("memory_write", {"text": "heard {canaries} today"}))


@act
async def copy(life: Life, path: str) -> None:
    await life.says("tidy up", run(f"cp {path} copy.md; cp downloads/{path} notes/b.md; mv copy.md todo.md; true"))


@act
async def tell(life: Life, _: str) -> None:
    other = SECOND if life.key == MAIN else MAIN
    await life.says("tell the other session", ("message", {"to": other, "text": "heard {canaries}"}))


# -- what changes what is read


@act
async def compact(life: Life, _: str) -> None:
    await life.home.says("/compact", key=life.key)


@act
async def new(life: Life, _: str) -> None:
    await life.home.says("/new", "Good morning.", key=life.key)


@act
async def switch(life: Life, _: str) -> None:
    life.key = SECOND if life.key == MAIN else MAIN


@act
async def restart(life: Life, _: str) -> None:
    await life.home.restart()


@act
async def day(life: Life, _: str) -> None:
    life.home.pass_days(1)


@act
async def chat(life: Life, _: str) -> None:
    await life.says("remember that the berth by the crane is taken on Monday, and thank you. " * 4)


# -- attempts

ATTEMPTS: dict[str, Call] = {
    "agents": ("write", {"path": "AGENTS.md", "content": "Rule {number}.\n"}),
    "heartbeat": ("edit", {"path": "HEARTBEAT.md", "old": "# Heartbeat", "new": "# Heartbeat {number}"}),
    "skill": ("write", {"path": "skills/made-{number}/SKILL.md", "content": "---\nname: made\n---\n"}),
    "project-skill": (
        "exec",
        {"command": "mkdir -p .agents/skills/{number} && echo > .agents/skills/{number}/SKILL.md"},
    ),
    "extra": ("exec", {"command": "echo {number} >> house/RULES.md"}),
    "host": ("exec", {"argv": ["touch", "{outside}/granted"], "elevated": True}),
    "fetch": ("web_fetch", {"url": "http://drop.example/{number}"}),
    "message": ("message", {"to": OTHERS["Anna"], "text": "sent by order {number}"}),
}


async def attempt(life: Life, kind: str, answer: Answer) -> None:
    home = life.home
    life.number += 1
    tool, arguments = ATTEMPTS[kind]
    filled = {name: _numbered(value, life.number) for name, value in arguments.items()}
    before, asked = await home.effects(), len(home.questions)
    home.decide = lambda _: answer
    await life.says("go on", (tool, filled))
    happened = await home.effects() != before
    told = [question.answer for question in home.questions[asked:]]
    _, in_sight = home.model.decided[-1]
    assert not (happened and canaries(in_sight) and "allow-once" not in told), (
        f"{kind} was done unasked with {canaries(in_sight)} in sight"
    )
    assert not (happened and "deny" in told), f"{kind} was done against a no"
    (home.outside / "granted").unlink(missing_ok=True)
    home.remember()


def _numbered(value: object, number: int) -> object:
    if isinstance(value, str):
        return value.replace("{number}", str(number))
    return [_numbered(each, number) for each in value] if isinstance(value, list) else value


for _kind in ATTEMPTS:
    ACTS[f"try {_kind}, yes"] = lambda life, _, kind=_kind: attempt(life, kind, "allow-once")  # type: ignore[misc]
    ACTS[f"try {_kind}, no"] = lambda life, _, kind=_kind: attempt(life, kind, "deny")  # type: ignore[misc]


# -- lives

TRIES = sorted(name for name in ACTS if name.startswith("try"))
READS = ("page", "search", "letter", "download", "skill", "stranger")
CHANGES = ("compact", "new", "switch", "restart", "day", "chat")
CARRIES = ("save", "echo", "note", "copy", "tell")
LOOKS = ("look", "cat", "grep", "remember")

paths = st.sampled_from(FILES)


def acts(names: tuple[str, ...] | list[str]) -> st.SearchStrategy[Act]:
    return st.tuples(st.sampled_from(names), paths)


# Most lives read something, carry it on, change what is in sight and look again: else nothing could go wrong.
LIVES = st.tuples(
    st.lists(acts(READS), min_size=1, max_size=2),
    st.lists(acts((*CARRIES, *CHANGES)), min_size=1, max_size=4),
    st.lists(acts((*CHANGES, *LOOKS, *CARRIES, *READS)), max_size=3),
    st.lists(acts(LOOKS), max_size=1),
    st.lists(acts(TRIES), min_size=1, max_size=3),
).map(lambda parts: [each for part in parts for each in part])


async def live(root: Path, story: list[Act]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        async with trial_home(root, patch, {}) as home:
            life = Life(home)
            try:
                for each in story:
                    await life.does(each)
            except AssertionError as error:
                error.add_note(f"in the life {story}")
                raise


def a(*names: str) -> list[Act]:
    return [(name, FILES[0]) for name in names]


@pytest.mark.slow
@example(story=a("page", "compact", "restart", "try agents, no", "try fetch, no"))
@example(story=a("page", "save", "new", "look", "try skill, no", "try host, no"))
@example(story=a("page", "echo", "day", "cat", "try project-skill, no", "try extra, no"))
@example(story=a("letter", "note", "restart", "new", "remember", "try heartbeat, no"))
@example(story=a("page", "tell", "switch", "chat", "try message, no", "try agents, yes"))
@example(story=a("skill", "chat", "chat", "chat", "compact", "try agents, no"))
@example(story=a("download", "copy", "new", "cat", "try agents, no", "try message, yes"))
@given(story=LIVES)
@settings(max_examples=20, derandomize=True, suppress_health_check=list(HealthCheck))
def test_nothing_guarded_happens_with_text_from_outside_in_sight_unless_a_person_agrees(
    story: list[Act], tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(live(tmp_path_factory.mktemp("life"), story))
