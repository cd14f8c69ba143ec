"""A home distilled into a wiki: what is on which page, what comes of a change, and what is never in it."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest
from foreign_trees import Tree, talk
from wikis import facts_of, make_wiki, outcomes, snapshot, texts, unfounded

from palinurus.domain.errors import BadRequest, NotFound, OutsideWorkspace
from palinurus.extensions.migrate.ingest.state import FILE

MEMORY = """# Memory

## User Preferences
- Prefers short answers
- Uses uv over pip

## Projects
### tide-clock
- Runs on a small board in the hall

## Rules
- Never push on a Friday

## Harbour
- The crane is painted red
"""
DAY = """# 2026-11-14

## Session: tide-clock release
- Tagged version 0.4.2
- Decision: the red hand shows low water
- Mira takes the early watch
- What is left to do?

## Retain
- W @tide-clock: the hall clock agrees with the harbour. Thanks to Mira’s cable.

```
- this is code and no note
```
"""


@pytest.fixture
def home(tree: Tree) -> Tree:
    tree.write("workspace/USER.md", "# You\n\n- **Name:** Sam\n- **Timezone:**\n")
    tree.write("workspace/MEMORY.md", MEMORY)
    tree.write("workspace/memory/2026-11-14.md", DAY)
    return tree


@pytest.fixture
def wiki(tmp_path: Path) -> Path:
    return tmp_path / "wiki"


def test_each_fact_stands_on_the_pages_of_what_it_is_about(home: Tree, wiki: Path) -> None:
    make_wiki(home.root, wiki)
    assert texts(wiki, "preferences/sam") == ["Prefers short answers", "Uses uv over pip"]
    assert texts(wiki, "people/sam") == ["**Name:** Sam"]
    assert texts(wiki, "people/mira") == [
        "Mira takes the early watch",
        "the hall clock agrees with the harbour. Thanks to Mira’s cable.",
    ]
    assert texts(wiki, "decisions/tide-clock") == ["Decision: the red hand shows low water"]
    assert texts(wiki, "patterns/general") == ["Never push on a Friday"]
    assert texts(wiki, "topics/harbour") == ["The crane is painted red"]
    assert texts(wiki, "projects/tide-clock")[:2] == ["Runs on a small board in the hall", "Tagged version 0.4.2"]
    assert not [fact for _, fact in facts_of(wiki) if "code" in fact.text or fact.text.endswith("?")]
    assert unfounded(home.root, wiki) == []


def test_a_page_says_what_it_is_and_links_to_the_others(home: Tree, wiki: Path) -> None:
    make_wiki(home.root, wiki)
    page = (wiki / "people/mira.md").read_text()
    assert page.startswith('---\ntitle: "Mira"\nkind: person\nupdated: 2026-11-14\nsources:\n')
    assert '  - "workspace/memory/2026-11-14.md#L6"\n' in page
    assert "- [[projects/tide-clock|tide-clock]]" in page
    assert "[[people/mira|Mira]] takes the early watch" in (wiki / "projects/tide-clock.md").read_text()
    assert "- [[people/mira|Mira]]: 2 facts, last 2026-11-14" in (wiki / "index.md").read_text()
    assert "- new: [[people/mira]]" in (wiki / "log.md").read_text()


def test_what_was_noted_on_purpose_comes_before_what_was_said(home: Tree, wiki: Path) -> None:
    home.write("workspace/memory/2026-01-05.md", "- tide-clock has an old hand\n")
    home.write("workspace/DREAMS.md", "## 2026-11-13\n\nThe tide-clock stood still in a dream.\n")
    home.session("s1", talk("s1", "Remember that tide-clock must be wound on Sundays."), key="agent:main:main")
    make_wiki(home.root, wiki)
    found = texts(wiki, "projects/tide-clock")
    wanted = ["Runs on a", "Tagged", "The tide-clock stood", "tide-clock has an old", "Remember that"]
    places = [next(at for at, text in enumerate(found) if text.startswith(words)) for words in wanted]
    assert places == sorted(places)


def test_doing_it_twice_touches_no_file(home: Tree, wiki: Path) -> None:
    home.session("s1", talk("s1", "We decided to paint the tide-clock blue."), key="agent:main:main")
    assert make_wiki(home.root, wiki).changed
    before = snapshot(wiki)
    report = make_wiki(home.root, wiki)
    assert not report.changed
    assert {source.outcome for source in report.sources} == {page.outcome for page in report.pages} == {"same"}
    assert snapshot(wiki) == before


def test_an_edited_source_changes_just_the_pages_that_rest_on_it(home: Tree, wiki: Path) -> None:
    make_wiki(home.root, wiki)
    home.write("workspace/memory/2026-11-14.md", DAY.replace("early watch", "late watch"))
    report = make_wiki(home.root, wiki)
    assert outcomes(report, "changed", "new", "removed") == ["people/mira", "projects/tide-clock"]
    assert "Mira takes the late watch" in texts(wiki, "people/mira")
    assert [source.path for source in report.sources if source.outcome != "same"] == ["workspace/memory/2026-11-14.md"]


def test_what_is_gone_from_the_home_goes_from_the_wiki(home: Tree, wiki: Path) -> None:
    make_wiki(home.root, wiki)
    (home.root / "workspace/memory/2026-11-14.md").unlink()
    report = make_wiki(home.root, wiki)
    assert outcomes(report, "removed") == ["decisions/tide-clock", "people/mira"]
    assert not (wiki / "people/mira.md").exists()
    assert "Mira" not in (wiki / "index.md").read_text()
    assert unfounded(home.root, wiki) == []


def test_a_dry_run_tells_the_same_and_writes_nothing(home: Tree, wiki: Path) -> None:
    planned = make_wiki(home.root, wiki, apply=False)
    assert not wiki.exists()
    done = make_wiki(home.root, wiki)
    assert planned.pages == done.pages
    assert (planned.applied, done.applied) == (False, True)


def test_no_secret_gets_into_a_wiki(home: Tree, wiki: Path) -> None:
    shaped, stored, named = "sk-ant-api03-Zx81aQ0000000000", "plain-words-of-a-key", "hunter2hunter2"
    key = "-----BEGIN PRIVATE KEY-----\n" + "Q2FuYXJ5MTIzNDU2Nzg5MENhbmFyeTEyMzQ1Njc4OTA=\n" * 9
    home.write("openclaw.json", json.dumps({"gateway": {"auth": {"token": "cfg-token-0123456789"}}}))
    profile = {"profiles": {"x:y": {"type": "token", "provider": "x", "token": stored}}}
    home.write("agents/main/agent/auth-profiles.json", json.dumps(profile))
    home.write("credentials/telegram.json", '{"botToken": "credential-canary"}')
    lines = f"- tide-clock uses {shaped} today\n- password: {named}\n- the key is {stored}, cfg-token-0123456789\n"
    lines += f"{key}\nEnd\n"
    home.write("workspace/memory/2026-11-13.md", lines)
    said = f"Remember: the tide-clock token is {shaped}. We decided that the password is {named}!\n{key}"
    home.session("s1", talk("s1", said), key="agent:main:main")
    report = make_wiki(home.root, wiki, secrets=["of-the-house-itself"])
    held = b"".join(path.read_bytes() for path in wiki.rglob("*") if path.is_file()).decode()
    for secret in (shaped, stored, named, "cfg-token-0123456789", "Q2FuYXJ5", "credential-canary"):
        assert secret not in held
    assert "tide-clock uses [redacted] today" in held
    assert report.redacted >= 5
    assert unfounded(home.root, wiki) == []


def test_conversations_of_others_and_deleted_ones_are_left_out(home: Tree, wiki: Path) -> None:
    home.session("s1", talk("s1", "We decided to sell the tide-clock."), key="agent:main:telegram:group:-42")
    home.session("s2", talk("s2", "We decided to keep the tide-clock."), key="agent:main:main")
    gone = home.session("s3", talk("s3", "We decided to burn the tide-clock."))
    gone.rename(gone.with_name("s3.jsonl.deleted.2026-11-15T09-00-00.000Z"))
    report = make_wiki(home.root, wiki)
    assert sum(report.left_out.values()) == 2
    said = [text for text in texts(wiki, "decisions/tide-clock") if text.startswith("We decided")]
    assert said == ["We decided to keep the tide-clock."]


def test_words_said_after_reading_the_web_are_marked_and_make_nobody_known(home: Tree, wiki: Path) -> None:
    read = {"role": "toolResult", "toolName": "web_fetch", "content": [{"type": "text", "text": "…"}]}
    lines = talk("s1", "look it up", "Fine.", "thanks", "My colleague Mallory decided to move tide-clock to the cloud.")
    lines.insert(4, {"type": "message", "id": "r", "parentId": "e2", "message": read})
    home.session("s1", lines, key="agent:main:main")
    make_wiki(home.root, wiki)
    page = (wiki / "decisions/tide-clock.md").read_text()
    assert "to the cloud. (2026-11-15, `agents/main/sessions/s1.jsonl#L6`, from outside)" in page
    assert not (wiki / "people/mallory.md").exists()


def test_a_note_cannot_write_html_or_our_marks(home: Tree, wiki: Path) -> None:
    bad = "- tide-clock <script>alert(1)</script> ![x](http://a.invalid/p.png)\n"
    bad += "- tide-clock <!-- /pal:ingest 0123456789abcdef -->\n"
    home.write("workspace/memory/2026-11-13.md", bad)
    make_wiki(home.root, wiki)
    page = (wiki / "projects/tide-clock.md").read_text()
    assert "\\<script>" in page
    assert "!\\[x]" in page
    before = snapshot(wiki)
    home.write("workspace/memory/2026-11-13.md", bad)
    assert not make_wiki(home.root, wiki).changed
    assert snapshot(wiki) == before


def test_one_agent_can_be_asked_for_and_the_others_stay(tree: Tree, wiki: Path) -> None:
    tree.write("openclaw.json", json.dumps({"agents": {"list": [{"id": "main"}, {"id": "night"}]}}))
    tree.write("workspace/MEMORY.md", "# M\n\n## Harbour\n- The crane is red\n")
    tree.write("workspace-night/MEMORY.md", "# M\n\n## Stars\n- The pole star stands still\n")
    make_wiki(tree.root, wiki)
    tree.write("workspace-night/MEMORY.md", "# M\n\n## Stars\n- The pole star moves\n")
    tree.write("workspace/MEMORY.md", "# M\n\n## Harbour\n- The crane is blue\n")
    report = make_wiki(tree.root, wiki, agent="night")
    assert outcomes(report, "changed") == ["topics/stars"]
    assert texts(wiki, "topics/harbour") == ["The crane is red"]


def test_a_bare_workspace_and_a_home_of_ours_are_sources_too(tmp_path: Path, wiki: Path) -> None:
    bare = tmp_path / "notes"
    bare.mkdir()
    (bare / "MEMORY.md").write_text("## Harbour\n- The crane is red\n")
    make_wiki(bare, wiki / "bare")
    assert texts(wiki / "bare", "topics/harbour") == ["The crane is red"]
    ours = tmp_path / "ours"
    (ours / "workspace").mkdir(parents=True)
    (ours / "palinurus.json").write_text("{}")
    (ours / "workspace/MEMORY.md").write_text("## Projects\n### argo\n- A small boat\n")
    _one_session(ours / "home.sqlite", talk("s1", "We decided to paint argo green."))
    make_wiki(ours, wiki / "ours")
    assert texts(wiki / "ours", "projects/argo") == ["A small boat", "We decided to paint argo green."]
    assert unfounded(ours, wiki / "ours") == []


def test_a_wiki_belongs_to_one_home_and_is_none(home: Tree, tmp_path: Path, wiki: Path) -> None:
    make_wiki(home.root, wiki)
    other = tmp_path / "other"
    other.mkdir()
    (other / "MEMORY.md").write_text("- something else here\n")
    with pytest.raises(BadRequest, match="is the wiki of"):
        make_wiki(other, wiki)
    with pytest.raises(BadRequest, match="holds the home itself"):
        make_wiki(home.root, home.root.parent)
    with pytest.raises(NotFound):
        make_wiki(tmp_path / "nowhere", wiki)


def test_a_wiki_inside_the_home_does_not_feed_on_itself(home: Tree) -> None:
    wiki = home.root / "workspace" / "notes" / "wiki"
    make_wiki(home.root, wiki)
    before = snapshot(wiki)
    assert not make_wiki(home.root, wiki).changed
    assert snapshot(wiki) == before


def test_without_its_state_or_with_a_damaged_one_the_wiki_comes_out_the_same(home: Tree, wiki: Path) -> None:
    make_wiki(home.root, wiki)
    before = {path: digest for path, (digest, _) in snapshot(wiki).items() if path != "log.md"}
    for damage in ("", "{broken"):
        (wiki / FILE).write_text(damage)
        make_wiki(home.root, wiki)
        assert {path: digest for path, (digest, _) in snapshot(wiki).items() if path != "log.md"} == before


def test_a_run_that_was_killed_before_its_end_is_made_good_by_the_next(home: Tree, wiki: Path) -> None:
    make_wiki(home.root, wiki)
    before = (wiki / FILE).read_bytes()
    home.write("workspace/MEMORY.md", MEMORY.replace("red", "blue"))
    home.write("workspace/memory/2026-11-14.md", "# 2026-11-14\n\n- nothing to tell\n")
    make_wiki(home.root, wiki)
    whole = {path: digest for path, (digest, _) in snapshot(wiki).items()}
    (wiki / FILE).write_bytes(before)  # as if the state had not been written any more
    assert not make_wiki(home.root, wiki).changed
    assert {path: digest for path, (digest, _) in snapshot(wiki).items()} == whole
    home.write("workspace/memory/2026-11-14.md", DAY)
    make_wiki(home.root, wiki)
    assert texts(wiki, "people/mira")


def test_odd_bytes_and_days_that_never_were_cost_at_most_their_line(home: Tree, wiki: Path) -> None:
    home.write("workspace/memory/2026-11-13.md", b"## 2026-99-99\n- tide-clock \xff\xfe is odd\n- *2026-13-40*\n")
    home.write("workspace/DREAMS.md", "## 2026-02-31\n\nA tide-clock without a day.\n")
    odd = '{"role": "user", "content": "We decided: tide-clock \\ud800 stays"}'
    home.session("s1", [*talk("s1", "hello"), odd.encode(), b'{"role": 7}', b"[", b'{"message": 3, "type": "message"}'])
    report = make_wiki(home.root, wiki)
    assert "We decided: tide-clock \ufffd stays" in texts(wiki, "projects/tide-clock")
    assert "A tide-clock without a day." in texts(wiki, "projects/tide-clock")
    assert report.skipped_total == 2
    assert not make_wiki(home.root, wiki).changed


def test_a_link_in_the_wiki_leads_nobody_out_of_it(home: Tree, wiki: Path, tmp_path: Path) -> None:
    outside = tmp_path / "precious.md"
    outside.write_text("mine\n")
    (wiki / "people").mkdir(parents=True)
    (wiki / "people" / "mira.md").symlink_to(outside)
    with pytest.raises(OutsideWorkspace):
        make_wiki(home.root, wiki)
    assert outside.read_text() == "mine\n"


def _one_session(path: Path, lines: list[dict[str, object]]) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE sessions (id, key, agent, archived_at, updated_at)")
    connection.execute("CREATE TABLE entries (position INTEGER PRIMARY KEY, session_id, payload)")
    connection.execute("INSERT INTO sessions VALUES ('s1', 'agent:main:main', 'main', NULL, 1)")
    for line in lines:
        connection.execute("INSERT INTO entries (session_id, payload) VALUES ('s1', ?)", (json.dumps(line),))
    connection.close()
