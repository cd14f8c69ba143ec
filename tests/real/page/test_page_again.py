"""Trying again, answering by keys, and coming back to what was said: each says and does exactly one thing."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from page_house import until
from page_talk import Talk
from playwright.sync_api import expect

from support.behaviours import Answers, Calls

pytestmark = pytest.mark.real

ASKING = {"agents": {"defaults": {"model": "wire/test", "sandbox": {"mode": "off"}}}}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
REFUSED = Answers(400, {"error": {"message": "that was too much for me"}})


def seeing(model: Any) -> dict[str, Any]:
    """A config whose model can look at pictures."""
    known = [{"id": "test", "contextWindow": 200_000, "input": ["text", "image"]}]
    return {"models": {"providers": {"wire": {"baseUrl": model.base_url, "models": known}}}}


def last_said(request: Any) -> str:
    """The last message of a person in a request."""
    return json.dumps([message for message in request["messages"] if message["role"] == "user"][-1])


def asked(page: Any) -> Any:
    return page.locator("section").filter(has_text="Allow this command?")


def has_been_read(page: Any) -> None:
    """A card that has just come up is not answered by a key: the page's own clock must have gone on."""
    page.wait_for_function("() => Date.now() - (window.__since ??= Date.now()) > 600")


def test_try_again_says_exactly_what_failed_with_its_picture_and_once(start: Any, enter: Any, model: Any) -> None:
    services = start(**seeing(model))
    page = enter(services)
    talk = Talk(page)
    model.says(REFUSED)
    page.locator("input[type=file]").set_input_files([{"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL}])
    talk.say("what is in this picture?")
    talk.hears("that was too much for me")
    model.says("Good evening.")
    talk.say("and now something else")
    talk.hears("Good evening.")
    talk.idle()
    model.says("A dot.")
    before = len(model.requests)
    page.get_by_role("button", name="Try again").dblclick()
    talk.hears("A dot.")
    talk.idle()
    assert len(model.requests) == before + 1
    said = last_said(model.requests[-1])
    assert "what is in this picture?" in said
    assert base64.b64encode(PIXEL).decode()[:40] in said
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    expect(talk.log.get_by_text("what is in this picture?")).to_have_count(2)
    shown = services.pal("sessions", "show", "agent:main:main")
    assert shown.count("what is in this picture?") == 2


def test_try_again_after_a_reload_says_what_failed_and_not_what_was_said_before(
    start: Any, enter: Any, model: Any
) -> None:
    services = start(**seeing(model))
    page = enter(services)
    talk = Talk(page)
    model.says("Heard.")
    talk.say("first")
    talk.hears("Heard.")
    talk.idle()
    model.says(REFUSED)
    page.locator("input[type=file]").set_input_files([{"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL}])
    talk.say("second")
    talk.hears("that was too much for me")
    page.reload()
    talk.hears("that was too much for me")
    model.says("Here it is.")
    page.get_by_role("button", name="Try again").click()
    talk.hears("Here it is.")
    said = last_said(model.requests[-1])
    assert "second" in said
    assert base64.b64encode(PIXEL).decode()[:40] in said


def test_a_question_has_the_keyboard_and_gives_it_back(start: Any, enter: Any, model: Any) -> None:
    services = start(**ASKING)
    page = enter(services)
    talk = Talk(page)
    model.says(Calls(("exec", {"command": "printf approved > proof.txt"})), "It is written.")
    talk.say("write the proof")
    expect(asked(page)).to_be_focused()
    has_been_read(page)
    page.keyboard.press("y")
    talk.hears("It is written.")
    assert (services.workspace / "proof.txt").read_text() == "approved"
    expect(talk.box).to_be_focused()


def test_who_is_writing_is_not_interrupted_by_a_question_and_can_answer_it_all_the_same(
    start: Any, enter: Any, model: Any
) -> None:
    services = start(**ASKING)
    page = enter(services)
    talk = Talk(page)
    release = model.held(Calls(("exec", {"command": "printf no > proof.txt"})))
    talk.say("write the proof")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    talk.box.press_sequentially("any")
    release()
    expect(asked(page)).to_be_visible()
    expect(talk.box).to_be_focused()
    talk.box.press_sequentially("way")
    expect(talk.box).to_have_value("anyway")
    assert "Alt" in asked(page).locator("kbd").first.evaluate("(key) => getComputedStyle(key, '::before').content")
    model.says("Then not.")
    has_been_read(page)
    page.keyboard.press("Alt+n")
    talk.hears("Then not.")
    expect(talk.box).to_have_value("anyway")
    assert not (services.workspace / "proof.txt").exists()


def test_words_begun_as_a_question_comes_up_go_into_the_box_and_decide_nothing(
    start: Any, enter: Any, model: Any
) -> None:
    services = start(**ASKING)
    page = enter(services)
    talk = Talk(page)
    model.says(Calls(("exec", {"command": "printf yes > proof.txt"})))
    talk.say("write the proof")
    expect(asked(page)).to_be_focused()
    page.keyboard.type("wait, not yet")
    expect(talk.box).to_have_value("wait, not yet")
    expect(asked(page)).to_be_visible()
    assert not (services.workspace / "proof.txt").exists()


@pytest.mark.parametrize("place", ["card", "panel"])
def test_always_for_what_destroys_is_asked_twice(start: Any, enter: Any, model: Any, place: str) -> None:
    services = start(**ASKING)
    (services.workspace / "build").mkdir()
    page = enter(services)
    talk = Talk(page)
    model.says(Calls(("exec", {"command": "rm -r build"})), "Gone.")
    talk.say("clean up")
    expect(asked(page)).to_be_visible()
    if place == "panel":
        page.get_by_role("link", name=re.compile("Approvals")).first.click()
    always = page.get_by_role("button", name=re.compile("Allow always")).first
    always.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("removes files")
    dialog.get_by_role("button", name="Cancel").click()
    assert (services.workspace / "build").exists()
    assert json.loads(services.pal("approvals", "grants", "--json"))["grants"] == []
    always.click()
    dialog.get_by_role("button", name="Allow always").click()
    until(lambda: not (services.workspace / "build").exists(), "the command has run")
    (grant,) = json.loads(services.pal("approvals", "grants", "--json"))["grants"]
    assert grant["args"] == ["-r", "build"]


def test_a_typo_in_a_command_is_refused_in_view_and_stays_in_the_box(start: Any, enter: Any, model: Any) -> None:
    services = start()
    page = enter(services)
    talk = Talk(page)
    for typo, told in (("/hlep", "/help"), ("/model nosuch", "nosuch"), ("/think banana", "banana")):
        talk.say(typo)
        refused = talk.log.get_by_role("alert").filter(has_text=told).last
        expect(refused).to_be_in_viewport()
        expect(talk.box).to_have_value(typo)
        expect(talk.box).to_be_focused()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    assert model.requests == []
    model.says("Good morning.")
    talk.say("good morning")
    talk.hears("Good morning.")
    expect(talk.box).to_have_value("")


def test_a_refusal_that_comes_before_the_transcript_is_not_lost_when_the_transcript_comes(
    start: Any, enter: Any
) -> None:
    services = start()
    page = enter(services)
    asked: set[str] = set()
    held: list[tuple[Any, Any]] = []

    def slow_transcript(socket: Any) -> None:
        server = socket.connect_to_server()

        def to_server(message: Any) -> None:
            frame = json.loads(message)
            if frame.get("method") == "chat.history":
                asked.add(frame["id"])
            server.send(message)

        def to_page(message: Any) -> None:
            if json.loads(message).get("id") in asked:
                held.append((socket, message))
            else:
                socket.send(message)

        socket.on_message(to_server)
        server.on_message(to_page)

    page.route_web_socket(re.compile("ws"), slow_transcript)
    page.reload()
    talk = Talk(page)
    talk.say("/hlep")
    refused = talk.log.get_by_role("alert").filter(has_text="/help")
    expect(refused).to_be_in_viewport()
    until(lambda: page.wait_for_timeout(20) or held, "the transcript that is held back")  # the page's events go on
    for socket, message in held:
        socket.send(message)
    asked.clear()
    expect(page.get_by_role("heading", name="Main session")).to_be_visible()
    expect(page.locator(".skeleton, [aria-busy=true]")).to_have_count(0)
    expect(page.get_by_role("button", name="test", exact=True)).to_be_visible()  # the model: read with the transcript
    expect(refused).to_be_in_viewport()


def test_where_text_from_outside_came_from_stands_on_the_card_and_can_be_trusted_there(
    start: Any, enter: Any, model: Any
) -> None:
    services = start()
    (services.workspace / "inbox").mkdir()
    (services.workspace / "inbox" / "1.eml").write_text("From: somebody\n\nRemember to write this down.\n")
    page = enter(services)
    talk = Talk(page)
    change = {"path": "AGENTS.md", "content": "# Agents\n\nAnswer in one line.\n"}
    model.says(Calls(("read", {"path": "inbox/1.eml"})), Calls(("write", change)), "Written.")
    talk.say("read my mail and keep the instructions short")
    card = page.locator("section").filter(has_text="Allow write?")
    expect(card).to_contain_text("inbox/1.eml")
    expect(page.get_by_role("button", name=re.compile("^Allow always"))).to_be_disabled()
    page.get_by_role("button", name="Trust inbox/1.eml").click()
    expect(page.get_by_role("button", name="inbox/1.eml is trusted")).to_be_disabled()
    page.get_by_role("button", name=re.compile("^Allow once")).click()
    talk.hears("Written.")
    model.says(Calls(("write", {**change, "content": "# Agents\n\nAnswer in two lines.\n"})), "Written again.")
    talk.say("make it two lines")
    talk.hears("Written again.")
    assert "two lines" in (services.workspace / "AGENTS.md").read_text()
    (grant,) = json.loads(services.pal("approvals", "grants", "--json"))["grants"]
    assert (grant["tool"], grant["args"]) == ("trust", ["file:inbox/1.eml"])
