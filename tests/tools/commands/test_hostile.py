"""Commands that try to get more than the allowlist gives. None of them may run without asking.

The allowlist (conftest.py) is more generous than anybody should be, so that each is stopped for what it does and not
because its program happens to be missing. They are grouped by what people are told.
"""

from __future__ import annotations

from typing import Any

import pytest

from palinurus.tools.commands.judge import Allowances, judge
from palinurus.tools.commands.shell import MAX_CHARACTERS, Script, parse_shell, render_script

HOSTILE: dict[str, list[str]] = {
    "a substitution": ["echo `touch x`", 'echo "`touch x`"'],
    "a variable or a substitution": [
        "cat$IFS/etc/passwd",
        "ls ${IFS}src",
        "ls $HOME",
        "echo $(touch x)",
        'echo "$(touch x)"',
        'echo "a\\\\$(touch x)"',
        "ls $'src\\x3btouch x'",
        'echo $"hello"',
        "echo $((1+1))",
        "$0 src",
        'grep "x$" src',
    ],
    "redirects (>)": [
        "echo hi > .bashrc",
        "echo hi >> .bashrc",
        "echo hi >| .bashrc",
        "echo hi 2> err",
        "echo hi>out",
        "ls src 1>&2",
        ">out ls src",
        "echo hi > out 2>&1",
    ],
    "redirects (<)": [
        "cat < /etc/passwd",
        "cat </etc/passwd",
        "cat <> secret",
        "cat << EOF\n$(touch x)\nEOF",
        "cat <<- EOF\nhi\nEOF",
        "cat <<< hi",
        "cat <(touch x)",
        "cat 3< secret",
    ],
    "in the background": [
        "ls src & touch x",
        "ls src&",
        "ls src &> out",
        "echo a &&& echo b",
    ],
    "errors into a pipe": ["ls src |& tee x", "ls src|&cat"],
    "a subshell, a group or a function": ["(touch x)", "ls src; (touch x)", "ls() { touch x; }", "echo a)"],
    "braces": ["{ touch x; }", "echo {touch,x}", "ls {a..z}", "{touch,x}", "git show HEAD@{1}"],
    "a pattern for file names": ["ls *", "cat src/*", "ls ?rc", "ls [a-z]*", "cat /etc/pass[w]d", "[ -f x ]", "l? src"],
    "a home directory": ["cat ~/.ssh/id_ed25519", "ls ~", "cat ~root/.ssh/id", "echo a=~/x", "echo a:~/x", "cat ''~"],
    "a comment": ["ls src # touch x", "# ls", "ls ''#x"],
    "begins with =": ["=touch x", "ls =touch"],
    "not closed": ["echo 'a", 'echo "a', "echo 'a'\"b", "echo 'it's'", 'echo "a\\"'],
    "a backslash": ["ls \\\nsrc", "gi\\\nt status", "ls src\\", "ls src; tou\\\nch x"],
    "invisible character": [
        "ls src\0; touch x",
        "ls src\rtouch x",
        "ls \x1b[2Ksrc",
        "ls\x0bsrc",
        "ls\x0csrc",
        "l\u200bs src",
        "ls src \u202e#",
        "git\u2060 status",
        "\ufeffls src",
        "ls \u00adsrc",
        "ls src\u0085touch x",
        "ls \x7fsrc",
        "ls \ud800",
        "ls \U000e0041",
    ],
    "only a shell understands": [
        "! ls src",
        "if true; then touch x; fi",
        "for f in a; do touch x; done",
        "while :; do ls; done",
        "case a in esac",
        "function ls",
        "time ls src",
        "eval touch x",
        "exec touch x",
        "command touch x",
        "builtin echo x",
        "source ./x.sh",
        ". ./x.sh",
        ": ; touch x",
        "cd / ; ls src",
        "cd / && rm -rf x",
        "export PATH=.",
        "alias ls=touch; ls x",
        "set -x",
        "trap ls EXIT",
        "ulimit -n 1",
        "umask 0",
        "read x",
        "type ls",
        "hash -p ./x ls",
        "enable -n echo",
        "unset PATH",
        "'eval' touch x",
        "e\\val touch x",
        "coproc touch x",
        "ls src\ncd /",
    ],
    "sets a variable": [
        "PATH=. git status",
        "LD_PRELOAD=./x.so ls src",
        "GIT_PAGER=./x git log",
        "A=b",
        "A+=b ls src",
        "ls src; IFS=x ls src",
        "env A=b ls src",
        "env LD_PRELOAD=./x.so ls src",
        "env PATH=. git status",
        "nice env PATH=. git status",
    ],
    "env: it has options": [
        "env -S 'touch x'",
        "env -S'touch x'",
        "env '-Stouch x'",
        "env --split-string='touch x'",
        "env --split='touch x'",
        "env -vS 'touch x'",
        "env -i ls src",
        "env - ls src",
        "env -u PATH ls src",
        "env -C / ls src",
        "env --chdir=/ ls src",
        "env -- touch x",
        "timeout 5 env -S 'touch x'",
        "env nice env -S 'touch x'",
    ],
    "an unknown option": [
        "nice --adjustment=5 touch x",
        "nice -5 touch x",
        "timeout --signal=KILL 5 touch x",
        "timeout --sig KILL 5 touch x",
        "nohup -- touch x",
        "/usr/bin/time -o x ls src",
        "stdbuf --output=L ls src",
        "stdbuf -o",
        "ionice -p 1",
        "nice -n",
    ],
    "the words before the program": ["timeout ls src", "timeout x touch y", "timeout"],
    "it names no program": ["nice", "timeout 5", "nohup", "stdbuf -oL"],
    "it starts a shell": [
        "sh",
        "sh -s",
        "cat x | sh",
        "echo 'touch x' | bash",
        "bash -lc 'ls src'",
        "bash -ic 'ls src'",
        "bash -ec 'ls src'",
        "sh -c",
        "sh -c 'ls src' name",
        "sh -c -- 'ls src'",
        "sh -ec 'ls src'",
        "bash --rcfile x -c 'ls src'",
        "bash --init-file x",
        "bash +O extglob -c 'ls src'",
        "zsh -c 'ls src'",
        "sh -",
    ],
    "it runs a program as another user": [
        "sudo ls src",
        "sudo -E ls src",
        "/usr/bin/sudo ls src",
        "doas ls",
        "su root",
        "chroot . ls",
        "unshare ls",
        "nsenter ls",
        "systemd-run ls",
        "ssh host",
        "ssh -o ProxyCommand=./x host",
        "nice sudo ls src",
        "sh -c 'sudo ls src'",
        "bwrap ls",
        "run0 ls",
        "sg root ls",
        "flatpak-spawn --host ls",
    ],
    "the program that it starts is not in its arguments": [
        "xargs ls",
        "ls src | xargs rm",
        "echo x | xargs -IX touch X",
        "watch ls",
        "parallel ls",
        "at now",
        "script x",
        "expect x",
        "busybox ls src",
        "busybox sh",
        "setsid ls src",
        "flock x ls src",
        "ssh-agent ls src",
        "hyperfine 'touch x'",
        "chronic ls src",
        "systemd-inhibit ls src",
        "dumb-init ls src",
        "nice xargs ls",
    ],
    "under its control": [
        "strace ls src",
        "gdb ls",
        "/lib64/ld-linux-x86-64.so.2 ls",
        "socat - EXEC:x",
        "taskset 1 ls",
        "choom -n 0 ls src",
        "rr record ls",
    ],
    "its standard input says": [
        "python3",
        "echo 'import os' | python3",
        "cat x | perl",
        "cat x | node",
        "cat x | nice python3",
        "cat x | sh -c python3",
        "cat x | ed",
        "echo '.shell touch x' | sqlite3",
        "vim",
        "less",
    ],
    "too many wrappers": ["nice " * 20 + "ls src", "env " * 20 + "ls src"],
    "without a check between them": [
        "bash -c 'git status && ls src'",
        "nice sh -c 'ls;ls b'",
        "sh -c \"sh -c 'ls a\nls b'\"",
    ],
    "-c: ": ["sh -c 'ls > x'", "sh -c 'ls $HOME'", "bash -c 'ls src & touch x'", "sh -c \"sh -c 'ls ~'\"", "sh -c ''"],
    "must name it": [
        "git bisect run ./x",
        "git push",
        "git push ./evil.git main",
        "git push evil main",
        "git fetch ./evil.git",
        "git pull ./evil.git main",
        "git clone ./evil.git x",
        "git ls-remote ./evil.git",
        "git remote add origin ./evil.git",
        "git remote set-url origin ./evil.git",
        "git submodule foreach ./x",
        "git config core.pager ./x",
        "git difftool",
        "git filter-branch",
        "git hook run x",
        "git anything-that-may-be-an-alias",
        "git Status",
        "git fetch ext::./x",
        "git clone anything::x",
        "git ''",
        "tar xIf ./x a.tar",
        "tar cfF a.tar ./x src",
        "tar xf a.tar",
        "awk 'BEGIN{system(\"touch x\")}'",
        "sed '1e touch x' src",
        "sed 'w x' src",
        "perl x.pl",
        "python3 x.py",
        "node x.js",
        "sh x.sh",
        "bash x.sh src",
        "vim x",
        "less x",
        "man x",
        "ed x",
        "sqlite3 x '.shell touch x'",
        "npm exec x",
        "npm install x",
        "pip install x",
        "docker run x",
    ],
    "is not on the allowlist": [
        "touch x",
        "cat '|touch x'",
        "cat ' | touch x'",
        "cat 'touch x|'",
        "cat 'touch x | '",
        "cat '>x'",
        "cat '<x'",
        "cat '!touch x'",
        "cat file:///etc/passwd",
        "cat ./..",
        'cat ""/etc/shadow',
        "cat .//../x",
        "find src '!' -delete",
        "git show HEAD:../x",
        "git worktree add ../x",
        "make CC=./x",
        "make -C x",
        "timeout 0 touch x",
        "ionice -c3 touch x",
        "/usr/bin/../bin/env touch x",
        "ls src | sh -c 'cat; touch x'",
        "sh -c 'ls src\ntouch x'",
        "ls src;touch x",
        "ls src ; touch x",
        "ls src&&touch x",
        "ls src||touch x",
        "ls src|touch x",
        "ls src\ntouch x",
        "ls src\n\n\ttouch x",
        "cat src |\ntouch x",
        "echo ok && curl x | head -n 1",
        "nice touch x",
        "nice -n 5 touch x",
        "timeout 5 touch x",
        "timeout -k 1 5 touch x",
        "env touch x",
        "env env touch x",
        "nohup touch x",
        "stdbuf -oL touch x",
        "sh -c 'touch x'",
        "bash -c 'ls src; touch x'",
        "sh -c \"sh -c 'touch x'\"",
        "timeout 5 sh -c 'ls src | touch x'",
        "find src -exec touch x ';'",
        "find src -execdir touch x +",
        "find src -ok touch x ';'",
        "find src -okdir touch x ';'",
        "find src -delete",
        "find src -fprint x",
        "find src -fprintf x y",
        "find src -fprint0 x",
        "find src -fls x",
        "find src '(' -delete ')'",
        "find -files0-from x",
        "git -c core.pager=./x log",
        "git -ccore.pager=./x log",
        "git -c alias.status='!touch x' status",
        "git --exec-path=./x status",
        "git --exec-path ./x status",
        "git -C / status",
        "git --git-dir=x status",
        "git --config-env=core.pager=X log",
        "git -p log",
        "git grep --open-files-in-pager=./x y",
        "git grep --open-files=./x y",
        "git grep -O./x y",
        "git diff --ext-diff",
        "git diff --output=x",
        "git diff --outp=x",
        "git log --output x",
        "git fetch --upload-pack=./x origin",
        "git fetch --upload=./x origin",
        "git clone -u ./x y",
        "git clone --config=core.sshCommand=./x y",
        "git push --receive-pack=./x origin",
        "git archive --exec=./x",
        "git rebase -x ./x",
        "git commit -S",
        "git -- status",
        "git diff -- --output=x",
        "tar --to-command=./x",
        "tar --to-com=./x",
        "tar -xf a.tar --to-command=./x",
        "tar --checkpoint=1 --checkpoint-action=exec=./x",
        "tar --checkpoint-act=exec=./x",
        "tar -I ./x -xf a.tar",
        "tar --use-compress-program=./x",
        "tar --rsh-command=./x",
        "tar -F ./x",
        "ls --color=always",
        "ls -- src",
        "cat -- --x",
        "cat -",
        "grep -r x",
        "grep -f x y",
        "grep --file=x y",
        "grep --fil=x y",
        "'ls' '-la'",
        "ls '-'la",
        "ls \\-la",
        'ls "-la"',
        "ls ''-la",
        "sort -o x src",
        "sort --output=x src",
        "sort --outp=x src",
        "sort --compress-program=./x src",
        "sort --compress-prog=./x src",
        "sort -T x",
        "make SHELL=./x",
        "make -f x",
        "dd of=x",
        "rsync -e ./x a b",
        "rsync --rsh=./x a b",
        "zip -TT ./x a b",
        "zip --unzip-command=./x a b",
        "vim -c '!touch x'",
        "vim '+!touch x'",
        "less '+!touch x' src",
        "rg --pre ./x y",
        "awk -f x",
        "sed -i s/a/b/ src",
        "sed --in-place s/a/b/ src",
        "python3 -c 'import os'",
        "npm test --script-shell=./x",
        "tee -a x",
        "cat /etc/shadow",
        "cat ../../etc/shadow",
        "cat src/../../x",
        "git diff /etc/shadow",
        "ls src; rm -rf src",
        "head -n 1 /etc/passwd",
        "head -n1 /etc/passwd",
        "head /etc/passwd",
        "cat src | head -n 1 /etc/passwd",
        "tail -f",
        "tail -F x",
        "tail -5f",
        "tail --follow",
        "tail --fol",
        "tail --lin=5",
        "tail -n 5 --retry",
        "tail --pid=1",
        "wc --files0-from=x",
        "wc --files0-from x",
        "wc --files0=x",
        "wc -l /etc/passwd",
        "cut -f1 /etc/passwd",
        "cut --output-d=x -f1",
        "cut -f",
        "uniq x /etc/y",
        "uniq -",
        "uniq --all-repeated=none",
        "tr a b /c",
        "tr",
        "tr -d",
        "head -- x",
        "head -",
        "head -zx",
        "head --help",
    ],
    "was not found": [
        "ls\u00a0src",
        "gi\u0442 status",  # the last letter is Cyrillic
        "\uff4c\uff53 src",
        "\\ ls src",
        "'ls src'",
        '"ls"" src"',
        "ls\u2028touch x",
        "ls\u3000src",
        "LS src",
        "./git status",
        "../bin/no-such status",
        "ls/ src",
        "/ src",
        "%1",
        "nice .. ls",
    ],
    "reads as options": ["-ls src", "-x\nls src", "-s", "+x", "sh -c '-x\nls src'", "sh -c +x"],
    "a program without a name": ["'' src", '""', "ls src | ''"],
    "a program is missing next to an operator": [
        "; ls",
        "ls ;; ls",
        "ls | | ls",
        "ls &&",
        "ls ||",
        "ls |",
        "&& ls",
        "ls\n;ls",
        "ls\n&& ls",
        "| ls",
    ],
    "it is empty": ["", " ", "\n", "\t\n "],
    "more than": [" ; ".join(["sh -c 'ls;ls;ls;ls'"] * 50), "ls;" * 200, "|".join(["ls"] * 200)],
    "longer than": ["echo " + "a" * MAX_CHARACTERS, "'" * (MAX_CHARACTERS + 1)],
}
CASES = [(command, why) for why, commands in HOSTILE.items() for command in commands]


@pytest.mark.parametrize(("command", "why"), CASES, ids=lambda value: ascii(value)[:60])
def test_a_hostile_command_asks_and_says_why(machine: Any, command: str, why: str) -> None:
    judgement = machine.judge(command)
    assert not judgement.covered
    assert judgement.granted == ()
    assert why in judgement.why


def test_there_are_enough_of_them() -> None:
    assert len({command for command, _ in CASES}) == len(CASES) >= 80


HARMLESS = {
    "git status": "git status",
    "git diff HEAD~1": "git diff 'HEAD~1'",
    "git diff HEAD^ src/a.py": "git diff 'HEAD^' src/a.py",
    "git log main..HEAD": "git log main..HEAD",
    "ls": "ls",
    "ls src": "ls src",
    "  ls\tsrc  ": "ls src",
    "ls src;": "ls src",
    "\nls src\n\n": "ls src",
    "cat a | head -n 5 | wc -l": "cat a | head -n 5 | wc -l",
    "cat a|head -5|tail -n +2|cut -d, -f1|tr a-z A-Z|uniq -c": (
        "cat a | head -5 | tail -n +2 | cut -d, -f1 | tr a-z A-Z | uniq -c"
    ),
    "cat a |\n  wc -l": "cat a | wc -l",
    "grep foo file && echo ok": "grep foo file && echo ok",
    "grep foo file&&echo ok||echo no;ls": "grep foo file && echo ok || echo no; ls",
    "ls a\nls b": "ls a; ls b",
    "ls a &&\n\n ls b": "ls a && ls b",
    "echo 'a; touch x'": "echo 'a; touch x'",
    "echo '$(touch x)' \"it's\"": "echo '$(touch x)' 'it'\"'\"'s'",
    'echo "a\\$b" "c\\\\d" "e\\f"': "echo 'a$b' 'c\\d' 'e\\f'",
    "echo a\\;b \\$c": "echo 'a;b' '$c'",
    "echo a'b c'\"d e\"f": "echo 'ab cd ef'",
    "echo '' \"\"": "echo '' ''",
    "echo 'two\nlines'": "echo $'two\\nlines'",
    "echo 'a\u00a0b'": "echo $'a\\u00a0b'",
    "echo hé ☃ !": "echo 'hé' '☃' '!'",
    "echo a#b": "echo 'a#b'",
    "grep 'x*' src": "grep 'x*' src",
    "env": "env",
    "env ls src": "env ls src",
    "npm test": "npm test",
    "nice ls src": "nice ls src",
    "nice -n 5 timeout 10s ls src": "nice -n 5 timeout 10s ls src",
    "timeout -k 1 -s TERM 5 git status": "timeout -k 1 -s TERM 5 git status",
    "stdbuf -oL -e 0 grep x src": "stdbuf -oL -e 0 grep x src",
    "sh -c 'ls src | wc -l'": "sh -c 'ls src | wc -l'",
    'bash -c "git status | wc -l"': "bash -c 'git status | wc -l'",
    "/usr/bin/head -n 1": "/usr/bin/head -n 1",
    "find src": "find src",
}


@pytest.mark.parametrize(("command", "shown"), HARMLESS.items(), ids=lambda value: ascii(value)[:60])
def test_a_harmless_command_is_covered_and_shown_on_one_line(machine: Any, command: str, shown: str) -> None:
    judgement = machine.judge(command)
    assert judgement.covered, judgement.why
    assert judgement.invocations
    script = parse_shell(command)
    assert isinstance(script, Script)
    assert render_script(script) == shown


def test_a_program_of_the_workspace_is_never_covered_whatever_it_is_called(fresh_machine: Any) -> None:
    machine = fresh_machine
    machine.install(machine.workspace / "git")
    (machine.workspace / "linked").mkdir()
    (machine.workspace / "linked" / "ls").symlink_to(machine.bin / "ls")
    (machine.workspace / "nice").symlink_to("/usr/bin/env")
    for command in ("./git status", "linked/ls src", f"{machine.workspace}/git status", "linked/../git status"):
        judgement = machine.judge(command)
        assert "is in a directory that the agent can write" in judgement.why
        assert not judgement.covered
    assert "is not the system's program" in machine.judge("./nice ls src").why


def test_a_path_through_the_workspace_does_not_help(fresh_machine: Any) -> None:
    machine = fresh_machine
    machine.install(machine.workspace / "git")
    machine.install(machine.workspace / "head")
    for path in (".:/usr/bin", ":/usr/bin", f"{machine.workspace}:/usr/bin"):
        where = type(machine.where)(machine.where.cwd, path, machine.where.writable)
        for command in ("git status", "head -n 1"):
            assert "can write" in judge(parse_shell(command), machine.allowed, where).why


def test_a_link_into_the_workspace_is_not_covered(fresh_machine: Any) -> None:
    machine = fresh_machine
    (machine.bin / "git").unlink()
    (machine.bin / "git").symlink_to(machine.install(machine.workspace / "own-git"))
    assert "can write" in machine.judge("git status").why


def test_a_filter_from_elsewhere_is_not_safe(fresh_machine: Any) -> None:
    machine = fresh_machine
    machine.install(machine.bin / "cut")
    assert "not on the allowlist" in machine.judge("cut -f1").why


def test_variables_that_the_model_sets_ask(machine: Any) -> None:
    where = type(machine.where)(machine.where.cwd, machine.where.path, variables=("GIT_PAGER",))
    judgement = judge(parse_shell("git log"), machine.allowed, where)
    assert not judgement.covered
    assert "GIT_PAGER" in judgement.why


ARGV: list[tuple[list[str], bool]] = [
    (["ls", "src"], True),
    (["echo", "$(touch x); touch y > z"], True),  # no shell ever sees it
    (["cat", "a\nb"], True),
    (["env", "-S", "touch x"], False),
    (["sh", "-c", "ls src"], True),
    (["sh", "-c", "ls $x"], False),
    (["cd", "/"], False),
    (["", "x"], False),
    ([], False),
    (["ls", "a\0b"], False),
    (["ls", "\ud800"], False),
    (["ls", "a" * MAX_CHARACTERS], False),
    (["ls src"], False),
]


@pytest.mark.parametrize(("argv", "covered"), ARGV, ids=lambda value: ascii(value)[:40])
def test_a_command_given_as_argv_is_judged_without_reading_it_as_a_shell(
    machine: Any, argv: list[str], covered: bool
) -> None:
    assert machine.judge(argv).covered is covered


CONSOLES = {
    "sqlite3 x.db": True,
    "sqlite3 -readonly x.db": True,
    "sqlite3 -interactive x.db 'select 1'": True,
    "sqlite3 -cmd 'select 1' x.db": True,
    "sqlite3 x.db 'select 1'": False,
    "sqlite3 -json -readonly x.db 'select 1'": False,
    "sqlite3 --version": False,
    "psql mail": True,
    "psql -f - mail": True,
    "psql -d mail -U me": True,
    "psql mail -c 'select 1'": False,
    "psql --command='select 1' mail": False,
    "mysql mail": True,
    "mysql -e 'select 1' mail": False,
    "sftp host": True,
    "ed x": True,
    "vim x": True,
    "dc -e 1p": False,
    "lynx x": True,
    "lynx -dump x": False,
    "python3 -i x.py": True,
    "python3 -Bi x.py": True,
    "python3 -B x.py": False,
    "node -i x.js": True,
    "node x.js": False,
    "less x": False,
}


@pytest.mark.parametrize(("line", "asks"), CONSOLES.items(), ids=lambda value: ascii(value)[:40])
def test_a_console_that_was_allowed_by_name_does_not_do_what_is_written_to_it(
    fresh_machine: Any, line: str, asks: bool
) -> None:
    """`.shell`, `\\!` and the like run anything, and what is written to them comes later, or from another program."""
    fresh_machine.install(fresh_machine.bin / line.split(maxsplit=1)[0])
    allowed = Allowances(allowlist=(line, "cat *"))
    for command in (line, f"cat x | {line}"):
        judgement = judge(parse_shell(command), allowed, fresh_machine.where)
        assert judgement.covered is not asks, judgement.why
        assert ("runs what its standard input says" in judgement.why) is asks
