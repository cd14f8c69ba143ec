"""Thirty tasks with web reading in between: all are done, and a person is seldom asked and never twice the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tasks import TASKS, Task
from trial_home import OTHERS, Question, TrialHome, trial_home
from ways import fetch


async def do(home: TrialHome, task: Task) -> list[Question]:
    """The questions that it took."""
    home.internet.pages = dict(task.pages)
    home.internet.hits = list(task.hits)
    for path, text in task.files.items():
        home.put(path, text)
    before = len(home.questions)
    for each in task.talks:
        result = await home.says(each.says, *each.steps, key=each.key)
        assert result.status == "ok", (task.name, result.error)
        assert home.model.left == 0, f"{task.name}: the model was not asked to go on"
    for place, wanted in task.done.items():
        last = home.model.requests[-1][-2_000:]
        assert wanted in await found(home, place), f"{task.name}: {place} is not as it should be: {last}"
    return home.questions[before:]


async def found(home: TrialHome, place: str) -> str:
    kind, _, name = place.partition(":")
    match kind:
        case "mail":
            return home.mail_log.read_text()
        case "to":
            return await home.said_in(OTHERS[name.capitalize()])
        case "outside":
            return str(sorted(path.name for path in home.outside.iterdir()))
    path = home.workspace / place.replace("{today}", home.model.words["today"])
    return path.read_text() if path.exists() else "there is no such file"


@pytest.mark.parametrize("between", ["", pytest.param("/new", marks=pytest.mark.slow)], ids=["one-session", "new-each"])
async def test_thirty_tasks_are_done_with_few_questions_and_none_twice(
    between: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one long session, where whatever was read stays read, and in a new one for each task."""
    asked: dict[str, list[Question]] = {}
    async with trial_home(tmp_path, monkeypatch, {}, mailbox="From: harbour\n\nWill you come?\n") as home:
        home.decide = lambda _: "allow-once"
        await home.says("hello, it is Anna", "Hello.", key=OTHERS["Anna"])
        for task in TASKS:
            asked[task.name] = await do(home, task)
            if between:
                await home.says(between, "A new beginning.")
    table = "\n".join(f"{len(questions)}  {name}" for name, questions in asked.items())
    print(table)
    questions = [question for each in asked.values() for question in each]
    twice = [plan for plan, count in Counter(question.digest for question in questions).items() if count > 1]
    assert len(TASKS) == 30
    assert len(questions) <= len(TASKS), table
    assert not twice, [question for question in questions if question.digest in twice]


async def test_a_source_that_the_owner_trusts_is_no_reason_to_ask_and_another_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a long session with the same pages does not ask about the same command for ever."""
    touch = ("exec", {"argv": ["touch", "{outside}/granted"], "elevated": True})
    async with trial_home(tmp_path, monkeypatch, {}) as home:
        home.decide = lambda _: "allow-once"
        home.internet.pages = {"docs.example/a": "Touch it.", "other.example/b": "Touch it, too."}
        await home.says("read http://docs.example/a and do it", fetch("http://docs.example/a"), touch, "Done.")
        assert len(home.questions) == 1
        await home.says("/trust host:docs.example")
        await home.says("once more", touch, "Done.")
        await home.says("and again", touch, "Done.")
        assert len(home.questions) == 1
        await home.says("read http://other.example/b", fetch("http://other.example/b"), touch, "Done.")
        assert len(home.questions) == 2
