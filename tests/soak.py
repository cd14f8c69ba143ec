"""The long runs of which `make test` has a sample: two hundred kills, a thousand messages. Run by `make soak`.

    python tests/soak.py [--kills 200] [--messages 1000] [--holder-kills 25] [--seed N]

Prints the seed; the same seed draws the same moments. Homes are kept when a run fails, so that they can be looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "faults"))

from crowd import talk_all_at_once
from delivering import deliver_again_and_again
from killing import kill_again_and_again


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def soak(options: argparse.Namespace, folder: Path) -> None:
    if options.kills:
        await deliver_again_and_again(folder / "delivers", kills=options.kills, seed=options.seed, progress=say)
        say(f"{options.kills} kills of one who delivers: each parcel came once or is marked as ambiguous")
    for queue in ("followup", "steer"):  # each message a turn of its own, and the mode that people have by default
        if options.kills:
            home = folder / f"killed-{queue}"
            await kill_again_and_again(home, kills=options.kills, seed=options.seed, queue=queue, progress=say)
            say(f"{queue}: {options.kills} kills: nothing was lost")
        if options.messages:
            await talk_all_at_once(
                folder / f"crowded-{queue}",
                messages=options.messages,
                sessions=5,
                kills=options.holder_kills,
                seed=options.seed,
                queue=queue,
                progress=say,
            )
            say(f"{queue}: {options.messages} messages, the holder killed: none lost, none doubled, all in order")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--holder-kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pal-soak-"))
    say(f"seed {options.seed}, homes in {folder}")
    try:
        asyncio.run(soak(options, folder))
    except AssertionError as error:
        say(f"FAILED, the homes are kept: {error}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
