#!/usr/bin/env python3
"""Look at a skill's folder and say what to mend. Needs nothing but Python 3.9."""

import re
import sys
from pathlib import Path

SECRET = re.compile(r"sk-[A-Za-z0-9_-]{20,}|ghp_[A-Za-z0-9]{30,}|AKIA[A-Z0-9]{16}|-----BEGIN [A-Z ]*PRIVATE KEY")
HIDDEN = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\U000e0000-\U000e007f]")


def complaints(folder):
    path = folder / "SKILL.md"
    if not path.is_file():
        yield f"{path} is not there"
        return
    text = path.read_text(encoding="utf-8")
    found = re.match(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)(.*)", text, re.DOTALL)
    if not found:
        yield "SKILL.md should begin with front matter between two lines ---"
        return
    yield from head(dict(re.findall(r"^([A-Za-z][\w-]*):[ \t]*(.*)$", found[1], re.MULTILINE)), folder)
    yield from body(found[2], folder)
    if len(text.encode()) > 256_000:
        yield "SKILL.md is larger than 256,000 bytes: it would not be loaded"
    if HIDDEN.search(text):
        yield "SKILL.md holds characters that cannot be seen"
    for each in (one for one in folder.rglob("*") if one.is_file() and one.stat().st_size < 1_000_000):
        if SECRET.search(each.read_text(encoding="utf-8", errors="replace")):
            yield f"{each.relative_to(folder)} seems to hold a secret: put it into the config, skills.entries"


def head(fields, folder):
    name = fields.get("name", "").strip("\"' ")
    about = fields.get("description", "").strip("\"' ")
    if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", name) or len(name) > 64:
        yield f"name should be lower-case words with hyphens, at most 64 characters: {name!r}"
    elif name != folder.resolve().name:
        yield f"the folder is called {folder.resolve().name} and the skill {name}: they should be the same"
    if not about:
        yield "description is missing: nobody could tell when to use the skill"
    elif len(about) > 200:
        yield f"description has {len(about)} characters; every session reads it, so keep it below 200"
    if ": " in about and fields.get("description", "")[:1] not in "\"'|>":
        yield "description holds a colon: put it in quotation marks"


def body(text, folder):
    lines = text.strip().splitlines()
    if not lines:
        yield "the body is empty"
    if len(lines) > 150:
        yield f"the body has {len(lines)} lines; move what is not always needed into references/"
    for named in dict.fromkeys(re.findall(r"\{baseDir\}/([\w./-]+\w)", text)):
        if ".." in named or not (folder / named).exists():
            yield f"{{baseDir}}/{named} is not there"
    for script in (folder / "scripts").glob("*"):
        if script.is_file() and script.name not in text:
            yield f"scripts/{script.name} is not named in the body: nobody would run it"


def main():
    if len(sys.argv) != 2:
        print("usage: check_skill.py FOLDER", file=sys.stderr)
        return 2
    try:
        found = list(complaints(Path(sys.argv[1])))
    except (OSError, UnicodeDecodeError) as error:
        print(f"check_skill: {error}", file=sys.stderr)
        return 2
    print("\n".join(found) if found else "nothing to mend")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
