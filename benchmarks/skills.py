"""How long it takes to list a thousand skills: in a new process with what is kept on disk, and in a running one.

python benchmarks/skills.py --skills 1000
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from palinurus.config.home import find_home
from palinurus.config.load import load_config
from palinurus.skills import discovery as catalog
from palinurus.skills.skills import AgentSkills

IN_ONE_PLACE = 190  # of the 200 that one place may have
TEXT = """---
name: skill-{number:04}
description: Does thing number {number} for people who need it. Use when thing {number} is asked for.
metadata: {{"openclaw": {{"emoji": "*", "requires": {{"bins": ["sh"], "env": ["KEY_{few}"]}}}}}}
---
# Skill {number}
"""


def make_home(base: Path, count: int) -> dict[str, str]:
    """A home with so many skills; gives the environment of a command in it."""
    for number in range(count):
        folder = base / f"place-{number // IN_ONE_PLACE}" / f"skill-{number:04}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(TEXT.format(number=number, few=number % 20) + "Do it well.\n" * 100)
    root = base / "home"
    root.mkdir()
    places = [str(place) for place in sorted(base.glob("place-*"))]
    (root / "palinurus.json").write_text(json.dumps({"skills": {"load": {"extraDirs": places}}}))
    return {"PALINURUS_HOME": str(root), "HOME": str(base), "PATH": os.environ["PATH"]}


def in_a_new_process(env: dict[str, str], times: int) -> list[float]:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "palinurus", "skills", "list"], env=env, check=True, capture_output=True)
        took.append((time.perf_counter() - began) * 1000)
    return took


def in_a_running_one(env: dict[str, str], times: int) -> list[float]:
    """Each time every file is looked at: what is believed for a quarter of a second is not believed here."""
    catalog.BELIEVED_SECONDS = 0.0
    home = find_home(env)
    skills = AgentSkills(home, load_config(home, env)).of("main")
    skills.listing()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        skills.listing()
        took.append((time.perf_counter() - began) * 1000)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", type=int, default=1_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = make_home(Path(folder), asked.skills)
        (cold,) = in_a_new_process(env, 1)
        in_a_new_process(env, 2)
        print(f"{asked.skills} skills, nothing kept: {cold:.0f} ms")
        for what, took in (
            ("a new process", in_a_new_process(env, 15)),
            ("a running one", in_a_running_one(env, 100)),
        ):
            print(f"{what}: median {statistics.median(took):.1f} ms, best {min(took):.1f} ms")


if __name__ == "__main__":
    main()
