from __future__ import annotations
import re, json
from typing import Any
import pytest
from page_talk import Talk, settled, ADDRESSES
from playwright.sync_api import expect
pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
OUT="/tmp/shots/"
import os; os.makedirs(OUT, exist_ok=True)

def test_scout(start, enter):
    house = start(scripted=False)
    page = enter(house)
    talk = Talk(page)
    page.wait_for_timeout(1500)
    page.screenshot(path=OUT+"s0-empty.png")
    names = [b.inner_text() for b in page.locator(".examples .example").all()]
    print("EXAMPLES", names)
    for n, name in enumerate(names):
        if n:
            page.get_by_role("button", name="New conversation").first.click(); page.wait_for_timeout(500)
        page.get_by_role("button", name=name).click(); page.keyboard.press("Enter"); 
        page.wait_for_timeout(400); talk.idle(); page.wait_for_timeout(1200)
        print("==", name, "\n", talk.log.inner_text())
        page.screenshot(path=OUT+f"s1-{n}.png")
    for words in ("/hlep","/model nosuch","/think banana","/model","/help","hello"):
        talk.say(words); page.wait_for_timeout(300); talk.idle(); page.wait_for_timeout(700)
        print("==", words, "BOX:", repr(talk.box.input_value())); 
    print(talk.log.inner_text())
    page.screenshot(path=OUT+"s2-typos.png")
    for a in ADDRESSES:
        page.goto(house.url+a); page.wait_for_timeout(300); settled(page); page.wait_for_timeout(300)
        page.screenshot(path=OUT+"s3"+a.replace("/","-")+".png", full_page=True)
        print("##", a, page.locator("main").inner_text()[:1500])
    print(page.watched.errors, [c for c in page.watched.console if "error" in c])
    page.goto(house.url); page.wait_for_timeout(1000)
    page.get_by_title("Model", exact=True).click(); page.wait_for_timeout(500); page.screenshot(path=OUT+"s4-model.png"); print("MODELS", page.get_by_role("menu").inner_text()); page.keyboard.press("Escape")
