"""What a grant covers: this program, these arguments, and nothing that it does not name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest
from palinurus.domain.events import Invocation
from palinurus.tools.grants import (
    Grant,
    GrantDraft,
    covers,
    covers_call,
    escape,
    exact_call,
    exact_draft,
    is_in_force,
    is_literal,
    matches,
    rule_text,
    split_rule,
    unescape,
)

GIT = ("/usr/bin/git", "/usr/bin/git")


def rule(text: str) -> GrantDraft:
    return GrantDraft("exec", *GIT, split_rule(text))


def git(*args: str) -> Invocation:
    return Invocation("git", *GIT, args)


@pytest.mark.parametrize(
    ("pattern", "args"),
    [
        ("diff", ("diff",)),
        ("diff *", ("diff", "notes.md")),
        ("diff *", ("diff", "")),
        ("diff *", ("diff", "two words")),
        ("diff src/*.py", ("diff", "src/deep/a.py")),
        ("diff **", ("diff",)),
        ("diff **", ("diff", "a", "b", "c")),
        ("diff --stat **", ("diff", "--stat", "HEAD~3", "main..side")),
        ("log -n*", ("log", "-n5")),
        ("log --author=*", ("log", "--author=me")),
        ("show /srv/*", ("show", "/srv/a/b")),
        ("show ../notes", ("show", "../notes")),
        ("clone https://example.org/*", ("clone", "https://example.org/x.git")),
        ("tag v[0-9].?", ("tag", "v1.2")),
        ("config a=*", ("config", "a=b")),
        ("show .git/*", ("show", ".git/hooks/pre-commit")),
        ("show *", ("show", ".github/x.git")),
        (r"add '*.py' \*", ("add", "*.py", "*")),
    ],
)
def test_a_grant_covers_what_its_patterns_name(pattern: str, args: tuple[str, ...]) -> None:
    assert covers(rule(pattern), git(*args))


@pytest.mark.parametrize(
    ("pattern", "args"),
    [
        ("show **", ("show", ".git/hooks/pre-commit")),
        ("show **", ("show", "sub/.git/config")),
        ("show *", ("show", "--to=.pal/backups/x")),
        ("diff", ("diff", "x")),
        ("diff *", ("diff",)),
        ("diff *", ("diff", "a", "b")),
        ("diff *", ("diff", "--output=x")),
        ("diff *", ("diff", "-x")),
        ("diff *", ("diff", "--")),
        ("diff ?-x", ("diff", "--x")),
        ("diff [-a]x", ("diff", "-x")),
        ("diff **", ("diff", "a", "--ext-diff")),
        ("diff ** x", ("diff", "x")),  # only the last one stands for several
        ("diff **", ("log",)),
        ("* diff", ("-c", "diff")),
        ("log -n*", ("log", "--no-pager")),
        ("log --author=*", ("log", "--output=x")),
        ("diff src/*", ("diff", "src/../../etc/passwd")),
        ("diff src/*", ("diff", "src/..")),
        ("diff *", ("diff", "..")),
        ("diff *", ("diff", "/etc/passwd")),
        ("diff **", ("diff", "a", "/etc/passwd")),
        ("diff *", ("diff", "~/.ssh/id_rsa")),
        ("show *", ("show", "host:/etc/passwd")),
        ("show --file=*", ("show", "--file=/etc/passwd")),
        ("add *", ("add", "@list")),
        ("add *", ("add", "+!sh")),
        ("config *", ("config", "core.pager=sh")),
        ("diff a*c", ("diff", "ab", "c")),
        ("diff 'a*'", ("diff", "abc")),
        ("DIFF", ("diff",)),
    ],
)
def test_a_grant_does_not_cover_what_it_does_not_name(pattern: str, args: tuple[str, ...]) -> None:
    assert not covers(rule(pattern), git(*args))


@pytest.mark.parametrize(
    ("binary", "resolved"),
    [
        ("/usr/bin/git", "/opt/evil/git"),  # the name has come to mean another program
        ("/usr/bin/sh", "/usr/bin/git"),  # another link to the same program, which acts by its name
        ("/home/me/git", "/home/me/git"),
        ("", ""),
    ],
)
def test_another_program_of_the_same_name_is_not_covered(binary: str, resolved: str) -> None:
    assert not covers(rule("diff"), Invocation("git", binary, resolved, ("diff",)))


def test_a_grant_for_a_program_that_was_not_found_covers_nothing() -> None:
    nowhere = Invocation("gti", "", "", ("diff",))
    assert not covers(exact_draft(nowhere), nowhere)


def test_a_grant_of_another_tool_says_nothing_about_commands() -> None:
    assert not covers(GrantDraft("message", *GIT, ("diff",)), git("diff"))
    assert not covers_call(rule("a=1"), "exec", {"a": 1})


@pytest.mark.parametrize(
    ("patterns", "arguments", "covered"),
    [
        (('text="hi"', 'to="ann"'), {"to": "ann", "text": "hi"}, True),
        (("text=*", 'to="ann"'), {"to": "ann", "text": {"any": 1}}, True),
        (("text=*", 'to="ann"'), {"to": "bob", "text": "hi"}, False),
        (("text=*", 'to="ann"'), {"to": "ann", "text": "hi", "file": "x"}, False),
        (('text="hi *"', 'to="ann"'), {"to": "ann", "text": "hi there"}, True),
        (("text=*", 'to=["a*"]'), {"to": ["ann", "bob"], "text": "hi"}, False),  # no `*` inside a list
        (("*", "*"), {"to": "ann", "text": "hi"}, False),
        (("text=*",), {"to": "ann"}, False),
        ((), {}, True),
    ],
)
def test_calls_of_other_tools_are_covered_argument_by_argument(
    patterns: tuple[str, ...], arguments: dict[str, object], covered: bool
) -> None:
    assert covers_call(GrantDraft("message", args=patterns), "message", arguments) is covered


def test_an_exact_draft_of_a_call_covers_that_call_alone() -> None:
    draft = exact_call("message", {"to": "ann*", "text": "hi"})
    assert covers_call(draft, "message", {"text": "hi", "to": "ann*"})
    assert not covers_call(draft, "message", {"text": "hi", "to": "anna"})
    assert not covers_call(draft, "note", {"text": "hi", "to": "ann*"})


@pytest.mark.parametrize(
    ("grant", "inside"),
    [
        (Grant("g", "exec", "home"), True),
        (Grant("g", "exec", "agent", agent="main"), True),
        (Grant("g", "exec", "agent", agent="other"), False),
        (Grant("g", "exec", "session", agent="main", session_key="agent:main:main"), True),
        (Grant("g", "exec", "session", agent="main", session_key="agent:main:direct:ann"), False),
        (Grant("g", "exec", "home", expires_at=1001), True),
        (Grant("g", "exec", "home", expires_at=1000), False),
        (Grant("g", "exec", "home", revoked_at=1), False),
    ],
)
def test_a_grant_holds_in_its_scope_until_it_ends(grant: Grant, inside: bool) -> None:
    assert is_in_force(grant, agent="main", session_key="agent:main:main", now=1000) is inside


@pytest.mark.parametrize(("text", "told"), [("diff 'open", "not closed"), ("diff \\", "backslash")])
def test_a_rule_that_cannot_be_read_says_why(text: str, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        split_rule(text)


ARGUMENT = st.text(st.sampled_from("ab-/.*?[]!=~@+:'\" \\\n"), max_size=8)
ARGUMENTS = st.lists(ARGUMENT, max_size=4).map(tuple)


@given(ARGUMENTS, ARGUMENTS)
def test_an_exact_grant_covers_its_own_arguments_and_no_others(own: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert covers(exact_draft(git(*own)), git(*own))
    assert covers(exact_draft(git(*own)), git(*other)) == (own == other)


@given(ARGUMENTS, ARGUMENTS)
def test_a_wildcard_never_lets_a_new_flag_through(patterns: tuple[str, ...], args: tuple[str, ...]) -> None:
    if covers(GrantDraft("exec", *GIT, patterns), git(*args)):
        for place, argument in enumerate(args):
            if argument.startswith("-"):
                assert place < len(patterns)
                assert patterns[place].startswith(("-", "[-]"))


@given(ARGUMENT, ARGUMENT)
def test_a_wildcard_never_leads_out_of_where_it_stands(pattern: str, argument: str) -> None:
    if matches(pattern, argument) and not is_literal(pattern):
        assert ".." not in argument.split("/")
        assert not argument.startswith(("/", "~")) or pattern[0] in "/~["


@pytest.mark.parametrize("argument", ["|touch x", " | touch x", "touch x|", "touch x |", "!touch x", "<x", ">x", "> x"])
def test_what_some_programs_open_as_a_command_or_a_file_has_to_be_named(argument: str) -> None:
    assert not matches("*", argument)
    assert not matches("?*", argument)
    assert matches(escape(argument), argument)


def test_a_bar_inside_an_argument_is_plain_text() -> None:
    assert matches("*", "a|b")
    assert matches("a*|", "ab|")


@given(ARGUMENTS)
def test_a_rule_that_is_shown_reads_as_the_same_rule(patterns: tuple[str, ...]) -> None:
    draft = GrantDraft("exec", *GIT, patterns)
    again = split_rule(rule_text(draft))[1:]
    assert [is_literal(each) for each in again] == [is_literal(each) for each in patterns]
    assert [unescape(each) for each in again] == [unescape(each) for each in patterns]
    assert all(before == after for before, after in zip(patterns, again, strict=True) if not is_literal(before))
