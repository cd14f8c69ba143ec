"""Grants, lines of the config and safe filters: what together covers a command, and what is told when they do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.tools.commands.hazards import covers_by_name, runs_other_programs
from palinurus.tools.commands.judge import (
    PROFILES,
    Allowances,
    CommandLocation,
    config_line_id,
    find_rule_problem,
    invocations,
    is_safe,
    judge,
)
from palinurus.tools.commands.programs import InnerPrograms, resolve_program, unwrap_programs
from palinurus.tools.commands.shell import Opaque, Script, parse_shell
from palinurus.tools.grants import Grant, exact_draft


def grant(machine: Any, name: str, *args: str) -> Grant:
    program = resolve_program((name,), cwd=machine.where.cwd, path=machine.where.path)
    return Grant(
        f"{name} {' '.join(args)}", "exec", "home", binary=program.binary, resolved=program.resolved, args=args
    )


def judged(machine: Any, command: str, *grants: Grant, where: CommandLocation | None = None) -> Any:
    return judge(parse_shell(command), Allowances(grants), where or machine.where)


def test_each_grant_that_was_needed_is_told_once(machine: Any) -> None:
    ls, rm, spare = grant(machine, "ls", "**"), grant(machine, "rm", "build/*"), grant(machine, "cat", "**")
    judgement = judged(machine, "ls a | ls b && rm build/x", spare, ls, rm)
    assert judgement.covered
    assert judgement.granted == (ls.id, rm.id)


def test_lines_of_the_config_and_filters_need_no_grant(machine: Any) -> None:
    allowed = Allowances([grant(machine, "ls", "**")], ["ls *"], ["wc"])
    judgement = judge(parse_shell("ls src | wc -l"), allowed, machine.where)
    assert judgement.covered
    assert judgement.granted == (config_line_id("ls *"),)  # the line is told, so that its use can be


def test_one_program_that_is_not_covered_makes_the_whole_command_ask(machine: Any) -> None:
    judgement = judged(machine, "ls src; rm -rf build", grant(machine, "ls", "**"))
    assert not judgement.covered
    assert judgement.granted == ()
    assert judgement.why == "rm -rf build is not on the allowlist"
    assert [each.name for each in judgement.invocations] == ["ls", "rm"]


def test_a_command_that_is_not_understood_has_no_invocations(machine: Any) -> None:
    judgement = judged(machine, "ls src > out", grant(machine, "ls", "**"))
    assert (judgement.covered, judgement.invocations, judgement.why) == (False, (), "it redirects (>)")


def test_a_grant_looks_through_wrappers_to_the_program(machine: Any) -> None:
    judgement = judged(machine, "nice -n 5 sh -c 'timeout 5 rm a'", grant(machine, "rm", "a"))
    assert judgement.covered
    assert [(each.name, each.args) for each in judgement.invocations] == [("rm", ("a",))]


def test_a_grant_for_a_wrapper_covers_nothing_that_it_starts(machine: Any) -> None:
    assert not judged(machine, "nice rm a", grant(machine, "nice", "**")).covered
    assert not judged(machine, "env rm a", grant(machine, "env", "**")).covered
    assert not judged(machine, "sudo ls", grant(machine, "sudo", "ls")).covered


def test_the_exact_grant_of_an_invocation_covers_it_whatever_the_program(machine: Any) -> None:
    for command in ("git bisect run ./x", "tar xIf ./x a.tar", "awk '{print}' a", "npm exec x", "less a", "sh x.sh"):
        script = parse_shell(command)
        assert isinstance(script, Script)
        found = invocations(script, machine.where)
        assert not isinstance(found, Opaque)
        assert covers_by_name(exact_draft(found[0]), found[0])


def test_a_rule_that_names_the_deciding_word_may_leave_the_rest_open(machine: Any) -> None:
    assert judged(machine, "git bisect run ./x", grant(machine, "git", "bisect", "**")).covered
    assert judged(machine, "python3 manage.py test", grant(machine, "python3", "manage.py", "*")).covered
    assert "must name it" in judged(machine, "python3 other.py test", grant(machine, "python3", "*", "test")).why


def test_a_program_that_was_replaced_is_no_longer_covered(fresh_machine: Any) -> None:
    machine = fresh_machine
    given_before = grant(machine, "rm", "a")
    (machine.bin / "rm").unlink()
    (machine.bin / "rm").symlink_to(machine.install(machine.bin / "other"))
    assert not judged(machine, "rm a", given_before).covered


WORDS = st.sampled_from(["ls", "rm", "git", "cat", "a", "build/x", "-f", "status", "bisect", "**", "*", "nice"])
COMMANDS = st.lists(
    st.tuples(WORDS, st.lists(WORDS.filter(lambda word: "*" not in word), max_size=3)), min_size=1, max_size=3
).map(lambda rows: " | ".join(" ".join([name, *args]) for name, args in rows))
RULES = st.lists(st.tuples(WORDS, st.lists(WORDS, max_size=3)), max_size=6)


@given(command=COMMANDS, rules=RULES, kept=st.sets(st.integers(0, 5)))
def test_fewer_grants_never_cover_more(
    machine: Any, command: str, rules: list[tuple[str, list[str]]], kept: set[int]
) -> None:
    grants = [grant(machine, name, *args) for name, args in rules]
    some = [each for place, each in enumerate(grants) if place in kept]
    assert judged(machine, command, *grants).covered or not judged(machine, command, *some).covered
    lines = [f"{name} {' '.join(args)}" for name, args in rules]
    few = [line for place, line in enumerate(lines) if place in kept]
    whole, part = (judge(parse_shell(command), Allowances(allowlist=each), machine.where) for each in (lines, few))
    assert whole.covered or not part.covered


@given(command=COMMANDS, rules=RULES)
def test_nothing_is_covered_whose_program_lies_where_the_agent_writes(
    machine: Any, command: str, rules: list[tuple[str, list[str]]]
) -> None:
    where = CommandLocation(machine.where.cwd, machine.where.path, ("/",))
    assert not judged(machine, command, *(grant(machine, name, *args) for name, args in rules), where=where).covered


# ——— the word that says what to run


@pytest.mark.parametrize(
    ("line", "command", "covered"),
    [
        # the text of a program stands behind options
        ("sed -n *", "sed -n '1e id' a", False),
        ("sed -n 5p *", "sed -n 5p a b", True),
        ("sed -n -e *", "sed -n -e '1e id' a", False),
        ("sed -n -e 5p *", "sed -n -e 5p a", True),
        ("sed -ne *", "sed -ne '1e id' a", False),
        ("sed -e*", "sed '-e1e id'", False),
        ("sed --expression=*", "sed '--expression=1e id'", False),
        ("sed -e 5p -f *", "sed -e 5p -f x a", False),
        ("sed 5p a -e *", "sed 5p a -e '1e id'", False),
        ("sed -i s/a/b/ *", "sed -i s/a/b/ a", True),
        ("sed -l 5 *", "sed -l 5 '1e id'", False),
        ("sed -- *", "sed -- '1e id'", False),
        ("sed --new-option 5p *", "sed --new-option 5p a", False),
        ("sed --new-option 5p a", "sed --new-option 5p a", True),
        ("awk -F: *", "awk -F: 'BEGIN{system(\"id\")}'", False),
        ("awk -F : *", "awk -F : 'BEGIN{system(\"id\")}'", False),
        ("awk -F : '{print}' *", "awk -F : '{print}' a", True),
        ("awk -v x=1 *", "awk -v x=1 'BEGIN{system(\"id\")}'", False),
        ("awk -f *", "awk -f x a", False),
        ("awk -f a.awk *", "awk -f a.awk x", True),
        ("awk --sandbox *", "awk --sandbox '{print}'", False),
        # interpreters
        ("python3 -u *", "python3 -u x.py", False),
        ("python3 -u x.py *", "python3 -u x.py a", True),
        ("python3 -W ignore *", "python3 -W ignore x.py", False),
        ("python3 -m *", "python3 -m x", False),
        ("python3 -m pytest *", "python3 -m pytest a", True),
        ("python3 -m pytest -k *", "python3 -m pytest -k a", True),
        ("python3 -c *", "python3 -c 'import os'", False),
        ("python3 -uc *", "python3 -uc 'import os'", False),
        ("python3 x.py --flag *", "python3 x.py --flag a", True),
        ("perl -w *", "perl -w x.pl", False),
        ("perl -pe *", "perl -pe 'system(1)' a", False),
        ("perl -pe s/a/b/ *", "perl -pe s/a/b/ a", True),
        ("perl -lI lib *", "perl -lI lib x.pl", False),
        ("perl -i.bak -pe *", "perl -i.bak -pe 'system(1)'", False),
        ("perl -e 1 -M*", "perl -e 1 -Mx", False),
        ("node -r x *", "node -r x y.js", False),
        ("node -e *", "node -e 'x()'", False),
        ("node -pe *", "node -pe 'x()'", False),
        ("node --print -e *", "node --print -e 'x()'", False),
        ("node --inspect *", "node --inspect y.js", False),
        ("node y.js *", "node y.js a", True),
        # commands of their own
        ("npm --silent *", "npm --silent exec", False),
        ("npm run *", "npm run test", True),
        ("docker --context x *", "docker --context x run", False),
        ("git --no-pager *", "git --no-pager bisect run ./x", False),
        ("git --no-pager *", "git --no-pager log", True),
        ("git --no-pager log *", "git --no-pager log a", True),
        ("git --new-option *", "git --new-option log", False),
        ("git push --force *", "git push --force ./evil.git", False),
        ("git push --force origin *", "git push --force origin main", True),
        ("git fetch --upload-pack *", "git fetch --upload-pack ./x origin", False),
        ("git clone -u *", "git clone -u ./x", False),
        ("git archive --exec *", "git archive --exec ./x HEAD", False),
        ("tar xf *", "tar xf a.tar", True),
        ("tar -xf *", "tar -xf a.tar", True),
        ("tar xIf *", "tar xIf ./x a.tar", False),
        ("tar xf a.tar -I *", "tar xf a.tar -I ./x", False),
        ("tar xf a.tar --to-command *", "tar xf a.tar --to-command ./x", False),
        ("tar cTf *", "tar cTf list a.tar", False),
        ("tar xf a.tar -C *", "tar xf a.tar -C sub", True),
        # options that start a program
        ("find src -exec *", "find src -exec ./x ';'", False),
        ("find src -name *", "find src -name a", True),
        ("find src -name * -ok id +", "find src -name a -ok id +", False),
        ("rsync -ave *", "rsync -ave ./x a b", False),
        ("rg --pre *", "rg --pre ./x y", False),
        ("sort --compress-prog *", "sort --compress-prog ./x a", False),
    ],
)
def test_a_wildcard_never_stands_for_what_is_run(machine: Any, line: str, command: str, covered: bool) -> None:
    judgement = judge(parse_shell(command), Allowances(allowlist=[line]), machine.where)
    assert judgement.covered is covered
    assert covered or "must name it" in judgement.why
    assert all(covers_by_name(exact_draft(each), each) for each in judgement.invocations)


@pytest.mark.parametrize(
    ("command", "listens"),
    [
        ("python3 -u", True),
        ("python3 -W ignore -", True),
        ("python3 -v", True),
        ("python3 -i", True),
        ("perl -w -", True),
        ("node /dev/stdin", True),
        ("python3 --version", False),
        ("node -v", False),
        ("python3 -c 'import os'", False),
        ("python3 -u x.py", False),
    ],
)
def test_an_interpreter_that_is_told_nothing_does_what_its_input_says(
    machine: Any, command: str, listens: bool
) -> None:
    judgement = judge(parse_shell(command), Allowances([exact(machine, command)]), machine.where)
    assert judgement.covered is not listens
    assert ("runs what its standard input says" in judgement.why) is listens


def exact(machine: Any, command: str) -> Grant:
    script = parse_shell(command)
    assert isinstance(script, Script)
    found = resolve_program(script.segments[0].argv, cwd=machine.where.cwd, path=machine.where.path)
    return Grant("exact", "exec", "home", binary=found.binary, resolved=found.resolved, args=exact_draft(found).args)


# ——— lines of the allowlist


@pytest.mark.parametrize(
    ("line", "command", "covered"),
    [
        ("git status", "git status", True),
        ("git status", "git status x", False),
        ("git diff *", "git diff", True),
        ("git diff *", "git diff a b", True),
        ("git diff *", "git diff --stat", False),
        ("git diff --stat *", "git diff --stat a", True),
        ("ls", "ls", True),
        ("ls", "ls a", False),
        ("cat '*'", "cat a", False),
        ("cat '*'", "cat '*'", True),
        ("cat src/*.py", "cat src/a.py", True),
        ("cat src/*.py", "cat src/a.py b", False),
        ("cat 'a b'", "cat 'a b'", True),
        ("cat 'a b'", "cat a b", False),
        ("./cat *", "cat a", False),
        ("*", "cat a", False),
        ("cat * | sh", "cat a", False),
        ("cat 'a", "cat a", False),
        ("", "cat a", False),
    ],
)
def test_a_line_covers_what_it_says_and_no_more(machine: Any, line: str, command: str, covered: bool) -> None:
    assert judge(parse_shell(command), Allowances(allowlist=[line]), machine.where).covered is covered


def test_a_line_may_name_a_program_by_its_path(machine: Any) -> None:
    line = f"{machine.bin}/cat *"
    assert judge(parse_shell("cat a"), Allowances(allowlist=[line]), machine.where).covered
    assert not judge(parse_shell("/usr/bin/cat a"), Allowances(allowlist=[line]), machine.where).covered


@pytest.mark.parametrize(
    "line", ["", "*", "./x", "c* a", "a 'b", "a | b", "a && b", "sudo *", "sh", "sh -c *", "xargs ls"]
)
def test_a_line_that_allows_nothing_is_told(line: str) -> None:
    assert find_rule_problem(line)


def test_a_usual_line_has_no_problem() -> None:
    assert not any(map(find_rule_problem, ["git status", "git diff *", "/usr/bin/ls", "sh build.sh", "cat 'a|b'"]))


# ——— filters


def safe(command: str) -> bool:
    script = parse_shell(command)
    assert isinstance(script, Script)
    return is_safe(resolve_program(script.segments[0].argv, cwd="/", path="/usr/bin:/bin"), tuple(PROFILES))


@pytest.mark.parametrize(
    "command",
    [
        *(
            "cat",
            "cat -n",
            "cut -d , -f 1,3",
            "cut -d- -f1",
            "cut -d - -f 1",
            "cut --delimiter=, --fields=2",
            "cut -c1-5",
        ),
        *("fold -sw 80", "grep x", "grep -in x", "grep -A 3 x", "grep -A3 x", "grep --ignore-case x", "grep ''"),
        *("head", "head -5", "head -n 5", "head -n5", "head -qn5", "head --lines=5", "head -c 100"),
        *("sort", "sort -rn", "sort -k 2,2n -t :", "sort -u", "tac", "tail -n +3", "tail -20"),
        *("tr a b", "tr -d x", "tr -cd 'a-z'", "tr -s ' '", "uniq -c", "uniq -f 1", "wc", "wc -lw", "wc --lines"),
    ],
)
def test_a_filter_on_its_standard_input_is_safe(command: str) -> None:
    assert safe(command)


@pytest.mark.parametrize(
    "command",
    [
        *("cat a", "cat -", "cat --num", "cut a", "cut -f1 a", "cut --fields 2", "fold a", "nl a", "rev a", "tac a"),
        *(
            "grep",
            "grep x a",
            "grep -r x",
            "grep -R x",
            "grep -rn x",
            "grep -nf a",
            "grep -f a",
            "grep -e x a",
            "grep -P x",
        ),
        *("grep --recursive x", "grep --rec x", "grep --include=a x", "grep -d recurse x", "grep -- x", "grep -A"),
        *("sort a", "sort -oa", "sort -uo a", "sort -o a", "sort -Ta", "sort -S 1", "sort --files0-from=a", "sort +1"),
        *("sort --random-source=a", "sort --parallel=9", "sort --debug", "head -n", "head --lines", "head --lines 5"),
        *("tail -fn5", "tail -n5 -f", "tail +5", "tail --follow=name", "tr a b c", "tr a -", "wc -l a", "wc --help"),
    ],
)
def test_a_filter_with_a_file_or_an_unknown_option_is_not(command: str) -> None:
    assert not safe(command)


def test_a_filter_counts_only_if_the_config_names_it() -> None:
    found = resolve_program(("wc", "-l"), cwd="/", path="/usr/bin:/bin")
    assert is_safe(found, ["wc"])
    assert not is_safe(found, ["cut"])


# ——— programs


@pytest.mark.parametrize(
    "name",
    [
        *("awk", "sed", "perl", "python", "python3", "python3.12", "node", "ruby", "sh", "bash", "zsh", "make", "npm"),
        *("npx", "yarn", "pnpm", "pip", "pip3", "cargo", "git", "tar", "find", "xargs", "env", "vim", "less", "man"),
        *("ssh", "rsync", "zip", "sudo", "/usr/bin/lua5.4", "ld-linux-x86-64.so.2"),
    ],
)
def test_people_are_warned_of_a_program_that_runs_others(name: str) -> None:
    assert runs_other_programs(name)


@pytest.mark.parametrize("name", ["ls", "cat", "echo", "rm", "wc", "md5sum", "x86", "lsd", ""])
def test_most_programs_need_no_warning(name: str) -> None:
    assert runs_other_programs(name) == ""


def test_unwrapping_tells_all_programs_and_all_wrappers() -> None:
    found = unwrap_programs(("nice", "sh", "-c", "a x | nice b; env c"))
    assert not isinstance(found, Opaque)
    assert found.programs == (("a", "x"), ("b",), ("c",))
    assert found.wrappers == ("nice", "sh", "env")
    assert unwrap_programs(("time", "a")) == InnerPrograms((("a",),), ("time",))


def test_a_program_is_found_as_the_system_would_find_it(fresh_machine: Any) -> None:
    root = fresh_machine.workspace
    real = fresh_machine.install(root / "one" / "real")
    (root / "two").mkdir()
    (root / "two" / "tool").symlink_to(real)
    (root / "one" / "tool").mkdir()  # a directory is no program
    (root / "one" / "plain").write_text("")  # nor is what may not be executed
    (root / "linked").symlink_to(root / "two")
    path = f"{root}/none:{root}/one:{root}/linked"

    found = resolve_program(("tool", "a"), cwd="/", path=path)
    assert (found.name, found.binary, found.resolved, found.args) == ("tool", f"{root}/two/tool", str(real), ("a",))
    assert resolve_program(("one/real",), cwd=str(root), path="").binary == str(real)
    assert resolve_program(("../two/tool",), cwd=f"{root}/one", path="").binary == f"{root}/two/tool"
    for name in ("plain", "nothing", "one", ".", "..", "", "one/real/", "one/plain"):
        assert resolve_program((name,), cwd=str(root), path=path).binary == ""
