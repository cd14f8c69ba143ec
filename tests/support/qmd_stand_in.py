"""A stand-in for qmd, with its commands and its output's format: `python qmd_stand_in.py [MOOD] COMMAND …`.

It is for what the real one cannot do here (`embed`, `vsearch` and `query` need models), and for its failures. Vectors
are feigned: `vsearch` and `query` find what `search` finds, by any of the words. tests/real runs the real program.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
import time
from pathlib import Path

CACHE = Path(os.environ["XDG_CACHE_HOME"]) / "qmd"
CONFIG = Path(os.environ["XDG_CONFIG_HOME"]) / "qmd" / "index.yml"
INDEX = CACHE / "index.sqlite"
MAGIC = "stand-in\n"


def load(path: Path, magic: str = "") -> dict:
    if not path.exists():
        return {}
    text = path.read_text()
    if not text.startswith(magic):
        sys.exit("SqliteError: file is not a database")
    return json.loads(text[len(magic) :])


def save(path: Path, data: dict, magic: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(magic + json.dumps(data))


def update() -> int:
    documents = {}
    for name, (root, mask) in load(CONFIG).items():
        for file in sorted(Path(root).rglob("*.md")) if "**" in mask else [Path(root, mask)]:
            if file.is_file() and not any(each.is_symlink() for each in (file, *file.parents)):
                rest = str(file.relative_to(root))
                if fnmatch.fnmatch(rest, mask.replace("**/", "*")):
                    documents[f"qmd://{name}/{rest}"] = file.read_text(errors="replace")
    save(INDEX, documents, MAGIC)
    print(f"Indexed: {len(documents)} new, 0 updated, 0 unchanged, 0 removed\n")
    print(f"Run 'qmd embed' to update embeddings ({len(documents)} unique hashes need vectors)")
    return 0


def search(mode: str, arguments: list[str]) -> list[dict]:
    query = arguments[arguments.index("--") + 1]
    flags = arguments[: arguments.index("--")]
    names = {flags[at + 1] for at, flag in enumerate(flags) if flag == "-c"}
    words = re.findall(r"\w+", query.lower())
    rows = []
    for file, text in load(INDEX, MAGIC).items():
        if file.removeprefix("qmd://").partition("/")[0] not in names or not words:
            continue
        found = [word for word in words if word in text.lower()]
        if not found or (mode == "search" and len(found) < len(words)):
            continue
        lines = text.split("\n")
        best = max(range(len(lines)), key=lambda at: sum(word in lines[at].lower() for word in words))
        start, end = max(0, best - 1), min(len(lines), best + 3)
        head = f"@@ -{start + 1},{end - start} @@ ({start} before, {len(lines) - end} after)"
        share = len(found) / len(words)
        by_words = share * min(1.0, 0.3 + text.lower().count(found[0]) / 20)
        score = round(by_words if mode == "search" else 0.3 + share / 2, 2)
        row = {"docid": f"#{abs(hash(file)) % 16**6:06x}", "score": score, "file": file, "line": best + 1}
        rows.append({**row, "title": lines[0], "snippet": f"{head}\n" + "\n".join(lines[start:end])})
    rows.sort(key=lambda row: -row["score"])
    return rows[: int(flags[flags.index("-n") + 1])]


def misbehave(mood: str, command: str) -> None:
    if mood == "hang" and command in ("search", "vsearch", "query"):
        time.sleep(600)
    if mood == "hang-update" and command == "update":
        time.sleep(600)
    if mood == "crash" and command in ("search", "vsearch", "query"):
        os.kill(os.getpid(), 9)
    if mood == "garbage" and command == "search":
        sys.exit(print("Loading model… 42 %\n[not json") or 0)
    if mood == "flood" and command == "search":
        for _ in range(200):
            sys.stdout.write("x" * 100_000)
    if mood == "no-lines" and command == "search":
        sys.exit(
            print(
                json.dumps(
                    [
                        {
                            "docid": "#1",
                            "score": 0.5,
                            "file": "qmd://memory-dir-main/2026-11-14.md",
                            "snippet": "the rudder",
                        }
                    ]
                )
            )
            or 0
        )
    if mood == "elsewhere" and command == "search":
        rows = [f"qmd://memory-dir-main/../../{name}" for name in ("secret.md", "etc/passwd")] + [
            "qmd://other/a.md",
            "qmd://memory-dir-main/gone.md",
        ]
        sys.exit(
            print(
                json.dumps([{"docid": "#1", "score": 0.5, "file": file, "snippet": "@@ -1,1 @@\nx"} for file in rows])
            )
            or 0
        )
    if mood == "no-models" and command in ("embed", "vsearch", "query"):
        sys.exit("NoBinaryFoundError")


def log(command: str, rest: list[str]) -> None:
    env = {name: os.environ.get(name, "") for name in ("NO_COLOR", "SECRET_KEY", "QMD_CONFIG_DIR")}
    call = {"at": command, "rest": rest, "env": env, "cwd": str(Path.cwd()), "pid": os.getpid()}
    with (CACHE.parents[2] / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(call) + "\n")


def main() -> int:
    mood = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1][0] == "+" else ""
    command, *rest = sys.argv[1:]
    CACHE.mkdir(parents=True, exist_ok=True)
    if mood != "+quiet":
        log(command, rest)
    misbehave(mood.removeprefix("+"), command)
    match [command, *rest]:
        case ["--version"]:
            print("qmd 2.1.0 (abcdef0)" if mood == "+old" else "qmd 2.8.3 (facd35e)")
        case ["collection", "list"]:
            print("\n".join(f"{name} (qmd://{name}/)" for name in load(CONFIG)) or "No collections found.")
        case ["collection", "add", path, "--name", name, "--mask", mask]:
            known = load(CONFIG)
            if name in known or not Path(path).is_dir():
                sys.exit(f"Collection '{name}' already exists.")
            save(CONFIG, {**known, name: [path, mask]})
        case ["collection", "remove", name]:
            save(CONFIG, {key: value for key, value in load(CONFIG).items() if key != name})
        case ["update"]:
            return update()
        case ["embed"]:
            print("✓ Done!")
        case ["search" | "vsearch" | "query", "--json", *more]:
            print(json.dumps(search(command, more), indent=2))
        case _:
            sys.exit(f"Unknown command: {sys.argv[1:]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
