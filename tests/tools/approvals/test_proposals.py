"""Before "always": what a rule would have let through, and the narrowest rule for what was chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.events import Invocation, Plan
from palinurus.ledger.audit import PastCommand
from palinurus.tools.grants import GrantDraft, covers, is_literal, rule_text, split_rule, unescape
from palinurus.tools.rule_proposals import narrowest_rules, replay_rules, sensitive_reasons, similar_invocations


def ran(command: str) -> Invocation:
    name, *args = command.split()
    return Invocation(name, f"/usr/bin/{name}", f"/usr/bin/{name}", tuple(args))


def plan(*commands: str, cwd: str = "/srv/work") -> Plan:
    return Plan("exec", " | ".join(commands), "host", cwd=cwd, invocations=tuple(map(ran, commands)))


def past(*commands: str, outcome: str = "allowed: profile") -> list[PastCommand]:
    return [PastCommand(1, "agent:main:main", plan(*command.split(" | ")), outcome) for command in commands]


def rule(text: str) -> GrantDraft:
    name, *args = split_rule(text)
    return GrantDraft("exec", f"/usr/bin/{name}", f"/usr/bin/{name}", tuple(args))


def proposed(*commands: str) -> list[str]:
    return [rule_text(each.draft) for each in narrowest_rules(map(ran, commands))]


def test_a_replay_tells_how_much_a_rule_would_have_let_through_and_what_of_it_touched_secrets() -> None:
    before = past("cat a", "cat .ssh/config", "cat a b", "ls", "cat .env", "cat --number a")
    tried = replay_rules([rule("cat *")], before)
    assert (tried.total, [each.plan.summary for each in tried.covered]) == (6, ["cat a", "cat .ssh/config", "cat .env"])
    assert [(each.command.plan.summary, each.reasons) for each in tried.sensitive] == [
        ("cat .ssh/config", ("touches ~/.ssh",)),
        ("cat .env", ("touches an .env file",)),
    ]


def test_a_pipeline_counts_only_when_the_rule_and_those_that_hold_cover_all_of_it() -> None:
    before = past("cat a | wc -l", "cat a", "wc -l")
    assert [each.plan.summary for each in replay_rules([rule("cat *")], before).covered] == ["cat a"]
    with_known = replay_rules([rule("cat *")], before, lambda each: each.name == "wc")
    assert [each.plan.summary for each in with_known.covered] == ["cat a | wc -l", "cat a"]


def test_a_command_that_was_not_understood_is_counted_and_never_covered() -> None:
    unknown = PastCommand(1, "agent:main:main", Plan("exec", "cat $(ls)", "host"), "denied")
    assert replay_rules([rule("cat **")], [unknown]) == replay_rules([], [unknown])


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("rm -rf build", "removes files"),
        ("dd if=a of=b", "writes to disks"),
        ("chmod -Rf 777 .", "changes permissions of a whole tree"),
        ("git push --force", "overwrites what others have"),
        ("git push -f origin", "overwrites what others have"),
        ("git push origin", "sends commits to another repository"),
        ("git reset --hard", "discards changes"),
        ("find . -delete", "removes files or runs programs"),
        ("cat /home/me/.ssh/id_ed25519", "touches keys"),
        ("cat ~/.aws/config", "touches cloud credentials"),
        ("cp --target=/etc/cron.d x", "touches /etc"),
        ("cat my.credentials", "touches credentials"),
        ("cat ~/.palinurus/palinurus.json", "touches the home of pal"),
        ("tar cf x .gnupg", "touches ~/.gnupg"),
        ("cat api_key.txt", "touches tokens or secrets"),
        ("sudo ls", "acts as another user"),
        ("curl https://example.org", "reaches the network"),
        ("npm install left", "installs or publishes packages"),
    ],
)
def test_what_stands_out_says_why(command: str, reason: str) -> None:
    assert reason in sensitive_reasons(plan(command))


@pytest.mark.parametrize(
    "command", ["git diff src", "ls docs", "cat notes.md", "git log --stat", "cat keyboard.md", "cp a /dev/null"]
)
def test_everyday_commands_do_not_stand_out(command: str) -> None:
    assert sensitive_reasons(plan(command)) == ()


def test_the_folder_counts_as_well() -> None:
    assert sensitive_reasons(plan("cat config", cwd="/home/me/.ssh")) == ("touches ~/.ssh",)


@pytest.mark.parametrize(
    ("commands", "rules"),
    [
        (["ls -l"], ["ls -l"]),
        (["ls -l", "ls -l"], ["ls -l"]),
        (["cat x/1", "cat y/2"], ["cat ?*"]),
        (["cat src/a.py", "cat src/b.py"], ["cat src/*.py"]),
        (["cat src/test_a.py", "cat src/test_ab.py"], ["cat src/test_a*.py"]),
        (["ledger add a.md", "ledger add b.md c.md"], ["ledger add *.md **"]),
        (["ledger add", "ledger add b"], ["ledger add **"]),
        (["ledger ls x", "ledger cat x"], ["ledger ls x", "ledger cat x"]),  # a sub-command is a deed of its own
        (["ls -l x", "ls -a x"], ["ls -l x", "ls -a x"]),
        (["ledger add a", "ledger add a -f"], ["ledger add a", "ledger add a -f"]),
        (["wc -l tests/a.py", "wc -l tests/b.py"], ["wc -l tests/*.py"]),
        (["cp -t x", "cp -t y"], ["cp -t x", "cp -t y"]),  # a flag's value may be anything
        (["cat /etc/a", "cat /srv/b"], ["cat /etc/a", "cat /srv/b"]),
        (["cat /srv/a", "cat /srv/b"], ["cat /srv/*"]),
        (["cat ../a", "cat ../b"], ["cat ../a", "cat ../b"]),
        (["cat x/a", "cat x/../b"], ["cat x/a", "cat x/../b"]),
        (["python3 a.py", "python3 b.py"], ["python3 a.py", "python3 b.py"]),
        (["ls x/1", "cat y"], ["ls x/1", "cat y"]),
    ],
)
def test_the_narrowest_rules_for_what_was_chosen(commands: list[str], rules: list[str]) -> None:
    assert proposed(*commands) == rules


def test_who_runs_other_programs_is_never_generalised_and_it_says_so() -> None:
    (one, two) = narrowest_rules([ran("python3 a/1"), ran("python3 a/2")])
    assert (rule_text(one.draft), rule_text(two.draft)) == ("python3 a/1", "python3 a/2")
    assert "runs whatever its script says" in one.remark
    links = [Invocation("py", "/usr/bin/py", "/usr/bin/python3", (f"a/{each}",)) for each in "12"]
    assert len(narrowest_rules(links)) == 2  # whatever the link is called


def test_only_what_was_allowed_and_has_the_same_flags_counts_as_alike() -> None:
    before = [*past("git diff a", "git diff --stat a", "git log a"), *past("git diff c", outcome="denied")]
    assert similar_invocations(ran("git diff b"), before) == (ran("git diff a"),)


WORD = st.text(st.sampled_from("ab/.-*[=@~ "), max_size=6)
EXAMPLE = st.lists(WORD, max_size=4).map(lambda args: Invocation("x", "/usr/bin/x", "/usr/bin/x", tuple(args)))
EXAMPLES = st.lists(EXAMPLE, min_size=1, max_size=4)


@given(EXAMPLES)
def test_proposals_cover_every_example(examples: list[Invocation]) -> None:
    drafts = [each.draft for each in narrowest_rules(examples)]
    assert all(any(covers(draft, each) for draft in drafts) for each in examples)


@given(EXAMPLES, EXAMPLE)
def test_a_proposal_covers_only_what_lies_between_its_examples(examples: list[Invocation], other: Invocation) -> None:
    for proposal in narrowest_rules(examples):
        own = [each for each in examples if covers(proposal.draft, each)]
        flags = {tuple(arg for arg in each.args if arg.startswith("-")) for each in own}
        if covers(proposal.draft, other) and other not in own:
            assert tuple(arg for arg in other.args if arg.startswith("-")) in flags  # no new flag, none left out
            assert len(other.args) >= min(len(each.args) for each in own)
            for place, pattern in enumerate(proposal.draft.args[: len(other.args)]):
                if is_literal(pattern):
                    assert other.args[place] in {each.args[place] for each in own}
                elif pattern != "**":
                    assert pattern.count("*") - 2 * pattern.count("[*]") >= 1
                    assert all(each.args[place].startswith(unescape(pattern)) for each in own)
