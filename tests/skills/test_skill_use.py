"""Which skills can be used, how they are offered and called, and what holds while one is in use."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shelved import Shelf, a_skill, write_skill

from palinurus.agent.gather import skill_list
from palinurus.domain.errors import NotFound, WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import Restriction, ToolRun, beyond
from palinurus.skills.offer import INTRODUCTION, clean_command, command_names, offer, parse_invocation
from palinurus.skills.requirements import may_be_set
from palinurus.skills.settings import SkillEntrySettings, SkillLimit, SkillsSettings
from palinurus.skills.skill import GOES_OUT, Capabilities, Skill, restriction_of, restriction_text
from palinurus.skills.skills import called_note
from palinurus.skills.use import SkillFiles, SkillText
from palinurus.tools.policy import Policy, Rules, ToolRequest, decide

# --- requirements ---

NEEDS = (
    'metadata: {"openclaw": {"requires": {"bins": ["ffmpeg"], "anyBins": ["a", "b"], "env": ["KEY", "OTHER"],'
    ' "config": ["browser.enabled"]}, "primaryEnv": "KEY"}}\n'
)


def reasons(shelf: Shelf, name: str, settings: SkillsSettings | None = None, **env: str) -> tuple[str, ...]:
    listing = shelf.open(settings or SkillsSettings(), env).listing()
    return next(each.verdict.reasons for each in listing.states if each.skill.name == name)


def test_everything_that_is_missing_is_said(shelf: Shelf) -> None:
    write_skill(shelf.skills, "video", NEEDS)
    assert reasons(shelf, "video") == (
        "missing programs: ffmpeg",
        "none of these programs is installed: a, b",
        "variables that are not set: KEY, OTHER",
        "the config does not set browser.enabled",
    )


def test_what_is_there_counts_wherever_it_comes_from(shelf: Shelf) -> None:
    write_skill(shelf.skills, "video", NEEDS)
    shelf.program("ffmpeg")
    shelf.program("b")
    settings = SkillsSettings(
        entries={"video": SkillEntrySettings(has_key=True)}, config_paths=("browser", "browser.enabled")
    )
    assert reasons(shelf, "video", settings, OTHER="x") == ()
    settings = SkillsSettings(
        entries={"video": SkillEntrySettings(env=("KEY",))}, config_paths=("browser.enabled",), variables=("OTHER",)
    )
    assert reasons(shelf, "video", settings) == ()
    assert reasons(shelf, "video", settings, KEY="") == ()  # an empty variable is none, and the config has one


def test_always_passes_over_all_but_the_system(shelf: Shelf) -> None:
    write_skill(shelf.skills, "here", NEEDS.replace('{"requires"', '{"always": true, "os": ["linux"], "requires"'))
    write_skill(shelf.skills, "there", NEEDS.replace('{"requires"', '{"always": true, "os": ["darwin"], "requires"'))
    assert reasons(shelf, "here") == ()
    assert reasons(shelf, "there") == ("only for darwin",)


def test_what_the_owner_does_not_want_is_not_used(shelf: Shelf) -> None:
    write_skill(shelf.skills, "mine")
    write_skill(shelf.bundled, "theirs")
    off = SkillsSettings(entries={"mine": SkillEntrySettings(enabled=False)})
    assert reasons(shelf, "mine", off) == ("switched off (skills.entries.mine.enabled)",)
    assert reasons(shelf, "theirs", SkillsSettings(allow_bundled=())) == ("not among skills.allowBundled",)
    assert reasons(shelf, "mine", SkillsSettings(allow_bundled=())) == ()
    assert reasons(shelf, "theirs", SkillsSettings(allow_bundled=("theirs",))) == ()
    assert reasons(shelf, "mine", SkillsSettings(allow=("theirs",))) == ("not among the agent's skills",)
    assert reasons(shelf, "theirs", SkillsSettings(allow=())) == ("not among the agent's skills",)


def test_a_program_that_is_installed_and_a_variable_that_is_set_are_noticed(shelf: Shelf) -> None:
    write_skill(shelf.skills, "video", 'metadata: {"openclaw": {"requires": {"bins": ["ffmpeg"], "env": ["KEY"]}}}\n')
    env: dict[str, str] = {}
    skills = shelf.open(env=env)
    assert skills.listing().usable == ()
    shelf.program("ffmpeg")
    env["KEY"] = "x"
    assert [skill.name for skill in skills.listing().usable] == ["video"]
    # One is made anew at the moment from which on a file that was just written can be trusted.
    assert any(skills.listing() is skills.listing() for _ in range(3))
    del env["KEY"]
    assert skills.offer().text == ""


@pytest.mark.parametrize("name", ["/bin/sh", "../sh", "-sh", "sh;ls", ""])
def test_a_program_is_a_name_and_no_path(shelf: Shelf, name: str) -> None:
    shelf.program("sh")
    write_skill(shelf.skills, "odd", f"metadata: {{openclaw: {{requires: {{bins: ['x', '{name}']}}}}}}\n")
    assert shelf.open().listing().usable == ()


# --- the list in the prompt ---


def test_the_list_is_xml_with_the_home_as_a_tilde(shelf: Shelf) -> None:
    write_skill(shelf.person / ".agents" / "skills", "fish", description='Boil & fry <fish> "well".')
    assert shelf.open().offer().text == (
        f"{INTRODUCTION}\n<available_skills>\n<skill><name>fish</name>"
        '<description>Boil &amp; fry &lt;fish&gt; "well".</description>'
        "<location>~/.agents/skills/fish/SKILL.md</location></skill>\n</available_skills>"
    )


def test_skills_that_a_model_may_not_choose_are_not_listed_and_can_be_called(shelf: Shelf) -> None:
    write_skill(shelf.skills, "secret-art", "disable-model-invocation: true\n")
    write_skill(shelf.skills, "for-models", "user-invocable: false\n")
    skills = shelf.open()
    assert "secret-art" not in skills.offer().text
    assert "for-models" in skills.offer().text
    assert set(skills.listing().commands) == {"secret_art"}


def test_a_long_list_loses_descriptions_then_names_and_says_so() -> None:
    skills = [a_skill(f"skill-{number:03}") for number in range(160)]
    full = offer(skills[:10], SkillLimit(), "/x")
    assert (full.form, full.listed) == ("full", 10)
    names = offer(skills[:120], SkillLimit(characters=12_000), "/x")
    assert (names.form, names.listed) == ("names", 120)
    assert "<description>" not in names.text
    cut = offer(skills, SkillLimit(characters=5_000), "/x")
    assert cut.form == "cut"
    assert f"[{160 - cut.listed} more are not listed: `pal skills check` shows them]" in cut.text
    most = offer(skills, SkillLimit(characters=100_000), "/x")
    assert (most.form, most.listed, most.total) == ("full", 150, 160)
    assert "[10 more are not listed" in most.text


@given(st.integers(0, 60), st.integers(0, 9_000), st.integers(0, 50))
def test_the_list_is_never_longer_than_its_budget(count: int, characters: int, listed: int) -> None:
    skills = [a_skill(f"s{number}") for number in range(count)]
    made = offer(skills, SkillLimit(characters=characters, listed=listed), "/x")
    assert len(made.text) <= characters
    assert made.text.count("<skill>") == made.listed <= listed


# --- slash commands ---


def test_commands_are_clean_and_differ() -> None:
    skills = [a_skill(name) for name in ("Git Helper!", "git-helper", "help", "日本", "x" * 60, "x" * 50)]
    found = command_names(skills, taken=("help", "/new"))
    assert list(found) == ["git_helper", "git_helper_2", "help_2", "skill_2", "x" * 32, f"{'x' * 30}_2"]


@given(st.lists(st.text(min_size=1, max_size=40), max_size=12))
def test_every_command_is_one_that_chat_apps_can_spell(names: list[str]) -> None:
    found = command_names([a_skill(name) for name in names])
    assert len(found) == len(names)
    assert all(0 < len(name) <= 32 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_") for name in found)
    assert clean_command("A--b  c") == "a_b_c"


def test_a_skill_is_called_by_its_command_or_by_name() -> None:
    commands = command_names([a_skill("read-pdf"), a_skill("My Skill")])
    by_command = parse_invocation("/read_pdf  letter.pdf now", commands)
    assert by_command is not None
    assert (by_command.skill.name, by_command.words) == ("read-pdf", "letter.pdf now")
    assert parse_invocation("/skill Read-PDF letter.pdf now", commands) == by_command
    assert parse_invocation("/skill read_pdf\nletter.pdf now", commands) == by_command
    assert by_command.arguments == {"command": "letter.pdf now", "commandName": "read_pdf", "skillName": "read-pdf"}
    assert parse_invocation("/unknown x", commands) is None
    assert parse_invocation("read_pdf x", commands) is None
    with pytest.raises(NotFound, match=r"there is no skill 'nope'.*there are My Skill, read-pdf"):
        parse_invocation("/skill nope", commands)


def test_what_a_model_reads_of_a_called_skill_are_its_instructions(shelf: Shelf) -> None:
    write_skill(shelf.skills, "tides", body="Run {baseDir}/x.sh\n")
    invoked = shelf.open().invoked("/tides at noon")
    assert invoked is not None
    note = called_note(invoked)
    assert (note.kind, note.name, note.origin) == ("skill", "tides", Origin.OWNER)
    assert f"Run {shelf.skills}/tides/x.sh" in note.text


# --- noticing use, and reading ---


@pytest.fixture
def files() -> SkillFiles:
    inner = a_skill("inner")
    inner = Skill(inner.about, "/ws/skills/inner", "workspace", "")
    managed = Skill(a_skill("managed").about, "/home/ann/.palinurus/skills/managed", "managed", "")
    return SkillFiles([inner, managed], "/ws", "/home/ann")


USES: dict[str, list[tuple[str, dict[str, object]]]] = {
    "managed": [
        ("read", {"path": "~/.palinurus/skills/managed/SKILL.md"}),
        ("read", {"path": "/home/ann/.palinurus/skills/managed/references/more.md#L3"}),
        ("exec", {"command": "python3 ~/.palinurus/skills/managed/scripts/x.py --in=a"}),
        ("exec", {"argv": ["sh", "/home/ann/.palinurus/skills/managed/x.sh"]}),
        ("exec", {"command": 'F="/home/ann/.palinurus/skills/managed/SKILL.md"; cat $F'}),
        ("exec", {"command": "cat SKILL.md", "workdir": "/home/ann/.palinurus/skills/managed"}),
    ],
    "inner": [
        ("read", {"path": "skills/inner/SKILL.md"}),
        ("read", {"path": "./skills/../skills//inner/SKILL.md"}),
        ("grep", {"pattern": ".", "path": "/ws/skills/inner"}),
        ("edit", {"path": "skills/inner/SKILL.md"}),
        ("exec", {"command": "cat <skills/inner/SKILL.md"}),
        ("exec", {"command": "cat inner/SKILL.md", "workdir": "skills"}),
    ],
    "": [
        ("read", {"path": "skills/other/SKILL.md"}),
        ("read", {"path": "skills/inner-but-another/SKILL.md"}),
        ("read", {"path": "\0"}),
        ("read", {}),
        ("read", {"path": 7}),
        ("ls", {"path": "skills/inner"}),
        ("write", {"path": "skills/inner/SKILL.md", "content": "x"}),
        ("exec", {"command": "ls skills"}),
        ("exec", {"argv": "skills/inner"}),
        ("web_fetch", {"url": "https://x/skills/inner"}),
    ],
}


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in USES.items() for call in calls])
def test_a_call_that_takes_a_skill_up_is_noticed(
    files: SkillFiles, name: str, call: tuple[str, dict[str, object]]
) -> None:
    assert [skill.name for skill in files.used_by(*call)] == ([name] if name else [])


def test_files_of_usable_skills_are_read_wherever_they_lie(shelf: Shelf) -> None:
    write_skill(shelf.base / "home" / "skills", "tides", body="See {baseDir}/more.md\n")
    write_skill(shelf.skills, "off")
    folder = shelf.base / "home" / "skills" / "tides"
    (folder / "more.md").write_text("More.")
    (folder / "picture.png").write_bytes(b"\x89PNG\xff")
    skills = shelf.open(SkillsSettings(entries={"off": SkillEntrySettings(enabled=False)}))
    read = skills.text(f"{folder}/SKILL.md")
    assert read is not None
    assert f"See {folder}/more.md" in read.text
    assert skills.text(f"{folder}/more.md") == SkillText("tides/more.md", "More.", Origin.OWNER, "skill:tides")
    assert skills.text("skills/off/SKILL.md") is None
    assert skills.text("AGENTS.md") is None
    with pytest.raises(NotFound):
        skills.text(f"{folder}/nothing.md")
    with pytest.raises(WorkspaceError, match=r"tides/picture.png is not text"):
        skills.text(f"{folder}/picture.png")


def test_what_a_registry_brought_is_text_from_outside(shelf: Shelf) -> None:
    write_skill(shelf.skills, "brought")
    (shelf.skills / "brought" / ".clawhub").mkdir()
    (shelf.skills / "brought" / ".clawhub" / "origin.json").write_text('{"registry": "https://hub.example"}')
    read = shelf.open().text("skills/brought/SKILL.md")
    assert read is not None
    assert read.origin == Origin.OUTSIDE


# --- a run that takes skills up ---

RUN = ToolRun(SessionKey.main("main"), "run-1", private=True)
ONE_HOST = "capabilities: {tools: [web_fetch], hosts: [tides.example.org]}\n"


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("c1", name, arguments)


def test_from_the_moment_it_is_read_a_skill_is_held_to_what_it_declares(shelf: Shelf) -> None:
    write_skill(shelf.skills, "tides", ONE_HOST)
    skills = shelf.open()
    read = call("read", path="skills/tides/SKILL.md")
    assert skills.before(RUN, read) is RUN  # or it could never be read
    later = skills.after(RUN, read)
    assert later.skills == ("tides",)
    assert [each.only for each in later.restrictions] == [("web_fetch",)]
    assert skills.after(later, read) is later
    assert skills.after(RUN, call("read", path="AGENTS.md")) is RUN
    policy = Policy(everybody=Rules(profile="full"))
    verdict = decide(policy, ToolRequest("exec", RUN.key, restrictions=later.restrictions))
    assert (verdict.allowed, verdict.layer) == (False, "restriction")
    assert "skill:tides" in verdict.why
    assert decide(policy, ToolRequest("web_fetch", RUN.key, restrictions=later.restrictions)).allowed
    assert "skill:tides" in beyond(later.restrictions, "web_fetch", {"url": "https://evil.example"})


def test_a_script_runs_within_what_its_skill_declares(shelf: Shelf) -> None:
    write_skill(shelf.skills, "tides", ONE_HOST)
    run = shelf.open().before(RUN, call("exec", command="sh skills/tides/scripts/x.sh"))
    assert [each.source for each in run.restrictions] == ["skill:tides"]


def test_two_skills_in_use_narrow_twice(shelf: Shelf) -> None:
    write_skill(shelf.skills, "tides", ONE_HOST)
    write_skill(shelf.skills, "notes", "capabilities: {tools: [read, write], paths: [notes]}\n")
    skills = shelf.open()
    run = skills.after(RUN, call("read", path="skills/notes/SKILL.md"))
    invoked = skills.invoked("/tides")
    assert invoked is not None
    run = skills.called(run, invoked)
    assert run.skills == ("notes", "tides")
    assert [each.only for each in run.restrictions] == [("read", "write"), ("web_fetch",)]


def test_a_command_sees_the_folders_of_skills_in_use_and_no_others(shelf: Shelf) -> None:
    write_skill(shelf.base / "home" / "skills", "used")
    write_skill(shelf.base / "home" / "skills", "idle")
    write_skill(shelf.skills, "inside")
    skills = shelf.open()
    run = skills.after(RUN, call("read", path=f"{shelf.base}/home/skills/used/SKILL.md"))
    run = skills.after(run, call("read", path="skills/inside/SKILL.md"))
    assert run.skills == ("used", "inside")
    assert skills.folders(run) == (f"{shelf.base}/home/skills/used",)
    assert skills.folders(RUN) == ()


def test_the_list_of_the_prompt_has_a_digest_that_follows_it(shelf: Shelf) -> None:
    skills = shelf.open()
    assert skill_list(skills.offer()) is None
    write_skill(shelf.skills, "one")
    first = skill_list(skills.offer())
    assert first is not None
    assert (first.name, first.state) == ("Skills", "present")
    assert skill_list(skills.offer()) == first
    write_skill(shelf.skills, "two")
    second = skill_list(skills.offer())
    assert second is not None
    assert second.digest != first.digest


# --- capabilities ---


def test_what_somebody_put_there_and_declares_nothing_is_as_free_as_its_agent() -> None:
    assert restriction_of(a_skill(), "/ws") is None
    assert restriction_text(None) == "the agent's policy"


def test_what_a_registry_brought_and_declares_nothing_is_treated_with_caution() -> None:
    found = restriction_of(a_skill(registry="https://hub.example"), "/ws")
    assert found == Restriction(
        "skill:pdf",
        "the skill pdf came from https://hub.example and declares nothing",
        ask=GOES_OUT,
        sandboxed=True,
    )


def test_what_is_declared_is_all_that_there_is() -> None:
    one_host = a_skill(capabilities=Capabilities(("web_fetch",), ("tides.example.org",)))
    found = restriction_of(one_host, "/ws")
    assert found is not None
    assert (found.only, found.hosts, found.sandboxed, found.ask) == (("web_fetch",), ("tides.example.org",), True, ())
    assert restriction_text(found) == "only web_fetch; hosts: tides.example.org; commands only in the sandbox"
    nothing = restriction_of(a_skill(capabilities=Capabilities(tools=())), "/ws")
    assert nothing is not None
    assert nothing.only == ()
    from_registry = restriction_of(
        a_skill(registry="hub", capabilities=Capabilities(tools=("read", "web_fetch"))), "/ws"
    )
    assert from_registry is not None
    assert (from_registry.ask, from_registry.sandboxed) == (GOES_OUT, True)  # no host was named


HOSTS = Restriction("skill:x", "it says so", hosts=("tides.example.org", "*.example.net", "local.example:8443"))
PATHS = Restriction("skill:x", "it says so", paths=("notes", "/ws/notes", "/home/skills/x"))
CALLS = [
    (HOSTS, "web_fetch", {"url": "https://tides.example.org/a"}, True),
    (HOSTS, "web_fetch", {"url": "https://TIDES.example.org./a"}, True),
    (HOSTS, "web_fetch", {"url": "https://a.b.example.net"}, True),
    (HOSTS, "web_fetch", {"url": "https://example.net"}, True),
    (HOSTS, "web_fetch", {"url": "https://local.example:8443/"}, True),
    (HOSTS, "web_fetch", {"url": "https://local.example/"}, False),
    (HOSTS, "web_fetch", {"url": "https://tides.example.org.evil.example/"}, False),
    (HOSTS, "web_fetch", {"url": "https://tides.example.org@evil.example/"}, False),
    (HOSTS, "web_fetch", {"url": "https://evil.example/?tides.example.org"}, False),
    (HOSTS, "web_fetch", {"url": "https://badexample.net/"}, False),
    (HOSTS, "web_fetch", {"url": "https://[::1"}, False),
    (HOSTS, "web_fetch", {"url": ""}, False),
    (HOSTS, "read", {"path": "a"}, True),
    (PATHS, "read", {"path": "notes/a.md"}, True),
    (PATHS, "read", {"path": "notes"}, True),
    (PATHS, "read", {"path": "/ws/notes/a.md#L3"}, True),
    (PATHS, "read", {"path": "/home/skills/x/SKILL.md"}, True),
    (PATHS, "read", {"path": "notes/../MEMORY.md"}, False),
    (PATHS, "read", {"path": "notes-of-others/a.md"}, False),
    (PATHS, "ls", {}, False),
    (PATHS, "write", {"path": "/etc/passwd"}, False),
    (PATHS, "apply_patch", {"patch": "..."}, False),
    (PATHS, "web_fetch", {"url": "https://x"}, True),
    (Restriction("s", "r", paths=(".",)), "read", {"path": "a/b"}, True),
    (Restriction("s", "r", paths=(".",)), "read", {"path": "../b"}, False),
    (Restriction("s", "r", paths=()), "read", {"path": "a"}, False),
    (Restriction("s", "r"), "read", {"path": "/etc/passwd"}, True),
]


@pytest.mark.parametrize(("restriction", "tool", "arguments", "may"), CALLS)
def test_a_call_stays_within_hosts_and_paths(
    restriction: Restriction, tool: str, arguments: dict[str, object], may: bool
) -> None:
    why = beyond((restriction,), tool, arguments)
    assert (why == "") is may
    assert may or restriction.source in why


# --- variables ---


def test_variables_reach_commands_only_where_they_should(shelf: Shelf) -> None:
    front = 'metadata: {"openclaw": {"requires": {"env": ["DECLARED"]}, "primaryEnv": "API_KEY"}}\n'
    write_skill(shelf.skills, "one", front)
    word = SkillEntrySettings(env=("DECLARED", "EXTRA", "LD_PRELOAD", "SET"), has_key=True)
    values = {"DECLARED": "d", "EXTRA": "e", "LD_PRELOAD": "evil.so", "API_KEY": "k", "SET": "config"}
    env = {"SET": "process"}
    skills = shelf.open(SkillsSettings(entries={"one": word}), env, values=lambda _: values)
    run = skills.after(RUN, call("read", path="skills/one/SKILL.md"))
    assert skills.variables(run, sandboxed=False) == {"DECLARED": "d", "EXTRA": "e", "API_KEY": "k"}
    assert skills.variables(run, sandboxed=True) == {}
    assert skills.variables(RUN, sandboxed=False) == {}
    granting = SkillEntrySettings(env=word.env, has_key=True, sandbox_env=True)
    granted = shelf.open(SkillsSettings(entries={"one": granting}), env, values=lambda _: values)
    assert granted.variables(run, sandboxed=True) == {"DECLARED": "d", "API_KEY": "k"}


@pytest.mark.parametrize(
    "name", ["PATH", "ld_preload", "DYLD_X", "PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV", "A=B", ""]
)
def test_variables_that_load_code_are_never_set(name: str) -> None:
    assert not may_be_set(name)


def test_a_skill_can_be_read_by_its_name_alone(shelf: Shelf) -> None:
    (write_skill(shelf.skills, "fish").parent / "more.md").write_text("Salt.")
    skills = shelf.open()
    for path in ("skill:fish", "skill:Fish/SKILL.md", "skill:fish/more.md"):
        assert skills.text(path) is not None
    assert skills.text("skill:bird") is None
    assert skills.text("skill:fish/../../secret") is None
    run = skills.after(RUN, ToolCall("1", "read", {"path": "skill:fish"}))
    assert run.skills == ("fish",)


def test_bundled_skills_are_listed_in_one_block_and_are_the_first_to_go() -> None:
    own, ours = a_skill("own"), msgspec.structs.replace(a_skill("ours"), tier="bundled")
    both = offer([ours, own], SkillLimit(), "/x")
    where = f"{ours.folder.rpartition('/')[0]}/NAME/SKILL.md"
    block = f'<bundled location="{where}">\nours: {ours.about.description}\n</bundled>'
    assert both.text.index("<name>own</name>") < both.text.index(block)
    names = offer([ours, own], SkillLimit(characters=len(both.text) - 1), "/x")
    assert "<bundled>ours</bundled>" in names.text
    one = offer([ours, own], SkillLimit(listed=1), "/x")
    assert "own" in one.text
    assert "<bundled" not in one.text
