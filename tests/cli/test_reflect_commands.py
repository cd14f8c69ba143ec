"""`pal memory beliefs|reflect|proposals|bank` on a real home."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.domain.messages import NOTED_OUTSIDE

NOTES = {
    "2026-09-01": """## Retain
- W @Anna: Lives in Graz.
- O(c=0.8) @Peter: Prefers tea to coffee.
- O(c=0.8) @Peter: Likes short mails.
- B @Boat: Painted the hull with @Anna.
""",
    "2026-10-01": f"""## Retain
- W @Anna: Born in 1980.
- O(c=0.8) @Peter: Likes short mails very much.
- O(c=0.9): I prefer evenings to mornings.
- W @Anna: Lives in Atlantis.{NOTED_OUTSIDE}
""",
}


def write_notes(workspace: Path, notes: dict[str, str]) -> None:
    (workspace / "memory").mkdir(exist_ok=True)
    for day, text in notes.items():
        (workspace / "memory" / f"{day}.md").write_text(f"# {day}\n{text}")


@pytest.fixture(autouse=True)
def notes(pal_command: Pal, workspace: Path) -> None:
    write_notes(workspace, NOTES)
    assert pal_command("config", "set", "memory.search.provider", "none").code == 0


@pytest.fixture
def repository(workspace: Path) -> None:
    """The workspace has a history of ours."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    subprocess.run(["git", "config", "palinurus.history", "true"], cwd=workspace, check=True)


def page(workspace: Path, name: str) -> str:
    return (workspace / "bank" / f"{name}.md").read_text()


def change(workspace: Path, name: str, old: str, new: str) -> None:
    text = page(workspace, name)
    assert old in text
    (workspace / "bank" / f"{name}.md").write_text(text.replace(old, new))


def reflected(pal_command: Pal, *options: str) -> dict[str, object]:
    done = pal_command("memory", "reflect", "--since", "2026-01-01", "--json", *options)
    assert done.code == 0, done.err
    return dict(done.json)


def beliefs(pal_command: Pal, *options: str) -> list[str]:
    return [each["statement"] for each in pal_command("memory", "beliefs", "--json", *options).json["beliefs"]]


def test_pages_say_what_the_notes_say_with_their_sources_and_nothing_from_outside(
    pal_command: Pal, workspace: Path
) -> None:
    done = reflected(pal_command)
    assert done["facts"] == 8
    assert "- W @Anna: Born in 1980. [memory/2026-10-01.md#L3]" in page(workspace, "world")
    assert "Painted the hull" in page(workspace, "experience")
    assert "## Peter\n- O(c=0.9" in page(workspace, "opinions")
    assert "Lives in Graz." in page(workspace, "entities/Anna")
    assert not any("Atlantis" in file.read_text() for file in (workspace / "bank").rglob("*.md"))


def test_a_second_reflection_changes_nothing_and_pages_are_no_facts(pal_command: Pal, workspace: Path) -> None:
    reflected(pal_command)
    before = {file: file.read_bytes() for file in (workspace / "bank").rglob("*.md")}
    done = reflected(pal_command)
    assert (done["facts"], done["pages"]) == (8, [])
    assert {file: file.read_bytes() for file in (workspace / "bank").rglob("*.md")} == before


def test_without_the_derived_store_and_the_record_everything_is_as_before(
    pal_command: Pal, home: Home, workspace: Path
) -> None:
    reflected(pal_command)
    change(workspace, "opinions", "Likes short mails. [", "Wants long letters. [")
    reflected(pal_command)
    before = {file: file.read_bytes() for file in (workspace / "bank").rglob("*.md")}
    told = pal_command("memory", "beliefs", "--json").json
    shutil.rmtree(home.root / "derived" / "knowledge")
    (workspace / ".pal" / "bank.json").unlink()
    assert pal_command("memory", "beliefs", "--json").json == told
    reflected(pal_command)
    assert {file: file.read_bytes() for file in (workspace / "bank").rglob("*.md")} == before


def test_an_edit_by_hand_is_respected_dated_and_believed(pal_command: Pal, workspace: Path) -> None:
    reflected(pal_command)
    change(workspace, "opinions", "Prefers tea to coffee.", "Prefers water to tea.")
    reflected(pal_command)
    assert "@Peter: Prefers water to tea. (yours, 20" in page(workspace, "opinions")
    assert "instead of: Prefers tea to coffee.)" in page(workspace, "opinions")
    assert "Prefers water to tea." in beliefs(pal_command, "--entity", "Peter")
    assert "Prefers tea to coffee." not in beliefs(pal_command)
    assert "water" in page(workspace, "entities/Peter")


def test_what_is_written_by_hand_stays_where_it_is(pal_command: Pal, workspace: Path) -> None:
    reflected(pal_command)
    change(workspace, "entities/Anna", "## Happened", "She is my sister.\n\n## Happened\n- Learns to sail.")
    reflected(pal_command)
    write_notes(workspace, {"2026-11-01": "## Retain\n- B @Anna: Sold her car.\n"})
    reflected(pal_command)
    text = page(workspace, "entities/Anna")
    assert text.index("She is my sister.") < text.index("## Happened") < text.index("Learns to sail. (yours, ")
    assert "Sold her car." in text
    found = pal_command("memory", "recall", "who learns to sail?", "--json").json["results"][0]
    assert (found["text"], found["entities"]) == ("Learns to sail.", ["Anna"])


@pytest.mark.usefixtures("repository")
def test_a_line_that_was_deleted_does_not_come_back_until_it_is_restored(pal_command: Pal, workspace: Path) -> None:
    reflected(pal_command)
    text = page(workspace, "opinions")
    (workspace / "bank" / "opinions.md").write_text(
        "".join(line for line in text.splitlines(keepends=True) if "evenings" not in line)
    )
    assert any(each["deleted"] for each in reflected(pal_command)["pages"])  # type: ignore[attr-defined]
    reflected(pal_command)
    assert "evenings" not in page(workspace, "opinions")
    change(workspace, "opinions", "# Opinions\n", "# Opinions\nOf my friends.\n")
    assert pal_command("memory", "bank", "restore", "bank/opinions.md").code == 0
    [backup] = (workspace / ".pal" / "backups" / "bank" / "opinions.md").iterdir()
    assert "Of my friends." in backup.read_text()
    reflected(pal_command)
    assert "evenings" in page(workspace, "opinions")


def test_a_page_that_would_lose_its_lines_without_a_reason_is_left_alone(pal_command: Pal, workspace: Path) -> None:
    facts = "".join(f"- W: Counted boat {number} twice.\n" for number in range(20))
    write_notes(workspace, {"2026-08-01": f"## Retain\n{facts}"})
    reflected(pal_command)
    before = page(workspace, "world")
    (workspace / "memory" / "2026-08-01.md").unlink()
    reports = {each["path"]: each for each in reflected(pal_command)["pages"]}  # type: ignore[attr-defined]
    assert "no note has them any more" in reports["bank/world.md"]["leftAlone"]
    assert page(workspace, "world") == before
    reflected(pal_command, "--accept-loss")
    assert "Counted boat" not in page(workspace, "world")


@pytest.mark.usefixtures("repository")
def test_each_reflection_is_a_commit_with_its_reason(pal_command: Pal, workspace: Path) -> None:
    assert reflected(pal_command)["commit"]
    change(workspace, "opinions", "Likes short mails.", "Wants long letters.")
    reflected(pal_command)
    log = subprocess.run(["git", "log", "--format=%an %b"], cwd=workspace, capture_output=True, text=True, check=True)
    assert "pal memory reflect" in log.stdout
    assert "edited by hand" in log.stdout
    assert "Wants long letters" in pal_command("memory", "bank", "diff").out


def test_proposals_wait_for_the_owner(pal_command: Pal, workspace: Path) -> None:
    reflected(pal_command)
    waiting = pal_command("memory", "proposals", "--json").json["proposals"]
    assert [each["text"] for each in waiting] == ["Peter: Likes short mails."]
    accepted = pal_command("memory", "proposals", "accept", waiting[0]["id"], "--text", "Peter wants short mails")
    assert accepted.code == 0
    assert (workspace / "MEMORY.md").read_text().endswith("## Learned\n\n- Peter wants short mails\n")
    reflected(pal_command)
    assert pal_command("memory", "proposals", "--json").json["proposals"] == []
    again = pal_command("memory", "proposals", "reject", waiting[0]["id"])
    assert again.code != 0
    assert "it was accepted" in again.err


def test_what_different_questions_find_is_proposed_and_what_is_from_outside_is_not(pal_command: Pal) -> None:
    for question in ("where does Anna live?", "is Anna in Graz?", "Anna home", "Anna home", "Atlantis", "in Atlantis"):
        assert pal_command("memory", "recall", question).code == 0
    reflected(pal_command)
    waiting = pal_command("memory", "proposals", "--json").json["proposals"]
    assert [each["text"] for each in waiting] == ["Peter: Likes short mails.", "Anna: Lives in Graz."]
    assert waiting[1]["why"] == "3 different questions have found it"


def test_memory_md_in_small_letters_and_dreams_md_are_used_where_they_are(pal_command: Pal, workspace: Path) -> None:
    (workspace / "MEMORY.md").rename(workspace / "memory.md")
    (workspace / "DREAMS.md").write_text("# Dreams\n\n## Retain\n- W @Otto: Keeps bees.\n")
    assert pal_command("memory", "recall", "bees", "--json").json["results"][0]["source"] == "DREAMS.md#L4"
    reflected(pal_command)
    [waiting] = pal_command("memory", "proposals", "--json").json["proposals"]
    told = pal_command("memory", "proposals", "accept", waiting["id"])
    assert told.code == 0
    assert "memory.md" in [each.name for each in workspace.iterdir()]
    assert "short mails" in (workspace / "memory.md").read_text()
    reflected(pal_command)
    assert "Keeps bees." in page(workspace, "entities/Otto")
    assert pal_command("memory", "proposals", "--json").json["proposals"] == []


def test_plain_notes_become_facts_by_rule_where_there_is_no_model(pal_command: Pal, workspace: Path) -> None:
    write_notes(workspace, {"2026-11-02": "My dentist is Dr Weber.\nRain all day.\n"})
    assert reflected(pal_command)["noted"] == ["memory/2026-11-02.md: - W: My dentist is Dr Weber."]
    assert reflected(pal_command)["noted"] == []
    told = pal_command("memory", "recall", "who is my dentist?", "--json").json["results"][0]
    assert (told["kind"], told["text"]) == ("world", "My dentist is Dr Weber.")


def test_to_tell_me_about_somebody_belongs_the_page_with_what_i_wrote_on_it(pal_command: Pal, workspace: Path) -> None:
    reflected(pal_command)
    change(workspace, "entities/Anna", "# Anna\n", "# Anna\nShe is my sister.\n")
    told = pal_command("memory", "recall", "tell me about Anna", "--json").json["results"]
    assert (told[0]["kind"], told[0]["path"]) == ("page", "bank/entities/Anna.md")
    assert "She is my sister." in told[0]["text"]
    assert {"Lives in Graz.", "Born in 1980."} <= {each["text"] for each in told}
    brief = pal_command("memory", "recall", "tell me about Anna", "--json", "--budget-tokens", "40").json["results"]
    assert (brief[0]["text"], brief[0]["source"]) == ("She is my sister.", "bank/entities/Anna.md#L2-L2")
    assert sum(len(each["text"]) + 1 for each in brief) <= 161


def test_the_page_of_somebody_says_what_is_so_and_what_was(pal_command: Pal, workspace: Path) -> None:
    write_notes(workspace, {"2026-10-15": "## Retain\n- W @Anna: Moved to Vienna.\n"})
    reflected(pal_command)
    text = page(workspace, "entities/Anna")
    assert (
        text.index("## Now") < text.index("Moved to Vienna.") < text.index("## Before") < text.index("Lives in Graz.")
    )
    assert "Lives in Graz." not in page(workspace, "world")


def test_a_dry_run_writes_nothing(pal_command: Pal, workspace: Path) -> None:
    assert reflected(pal_command, "--dry-run")["pages"]
    assert not (workspace / "bank").exists()


@pytest.mark.slow
def test_after_a_kill_at_any_moment_the_next_reflection_makes_the_bank_whole(
    pal_command: Pal, home: Home, workspace: Path
) -> None:
    """The process is killed when it replaces its first, second, … file, of the notes or of the bank."""
    plain = {"2026-11-02": "My dentist is Dr Weber.\n"}
    write_notes(workspace, plain)
    reflected(pal_command)
    whole = {file.name: file.read_bytes() for name in ("bank", "memory") for file in (workspace / name).rglob("*.md")}
    environment = {**os.environ, "PALINURUS_HOME": str(home.root)}
    for count in (1, 2, 3, 5, 8, 13, 40):
        shutil.rmtree(workspace / "bank")
        (workspace / ".pal" / "bank.json").unlink(missing_ok=True)
        write_notes(workspace, plain)
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(count), "memory", "reflect"],
            env=environment, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert killed.returncode in (0, -signal.SIGKILL), killed.stderr.decode()
        reflected(pal_command)
        there = (file for name in ("bank", "memory") for file in (workspace / name).rglob("*.md"))
        assert {file.name: file.read_bytes() for file in there} == whole
        assert not json.loads((workspace / ".pal" / "bank.json").read_text()).get("refused")
        if killed.returncode == 0:
            return
    pytest.fail("the reflection never came to its end")


# Ends when a file is put into its place for the so-manyth time.
KILLED = """
import os, signal, sys
count = int(sys.argv[1])

def dying(real):
    def put(*given, **more):
        global count
        count -= 1
        if not count:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **more)
    return put

os.rename, os.link = dying(os.rename), dying(os.link)
from palinurus.__main__ import main
sys.argv = ["pal", *sys.argv[2:]]
main()
"""


def test_proposals_are_settled_in_a_chat(pal_command: Pal, workspace: Path) -> None:
    reflected(pal_command)
    (first, *_) = pal_command("memory", "proposals", "--json").json["proposals"]
    said = (
        f"/proposals\n/proposals accept {first['id']} Peter wants short mails\n/proposals reject nothing\n/proposals\n"
    )
    ended = pal_command("chat", stdin=said)
    assert f"{first['id']}  {first['text']} (" in ended.out
    assert "MEMORY.md says now: Peter wants short mails" in ended.out
    assert "no open proposal 'nothing'" in ended.out
    assert "- Peter wants short mails" in (workspace / "MEMORY.md").read_text()
