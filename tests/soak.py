"""The long runs of which `make test` has a sample: kills by the hundred, a thousand messages. Run by `make soak`.

    python tests/soak.py [--kills 200] [--messages 1000] [--holder-kills 25] [--gateway-kills 100]
                         [--postgres-kills 50]
                         [--subagent-kills 40] [--clock-kills 50] [--channel-kills 50] [--outage 100]
                         [--memory-kills 100] [--clients 1000] [--minutes 10] [--turns 2000] [--steps 5000]
                         [--seed N]

Prints the seed; the same seed draws the same moments. Homes are kept when a run fails, so that they can be looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "faults"))
sys.path.insert(0, str(Path(__file__).parent / "subagents"))

from channel_killing import kill_a_channel
from channel_outage import outlast_an_outage
from cron_killing import kill_the_clock
from crowd import talk_all_at_once
from delivering import deliver_again_and_again
from gateway_killing import kill_the_gateway
from gateway_soak import besiege, check_steady
from killing import kill_again_and_again
from long_talk import check_long, talk_for_long
from losing import converse
from memory_killing import kill_the_indexer
from postgres_home import PostgresHome
from test_crashes import model, run, served

from homes import PalHome
from support.postgres import running_server

CHANNELS = (
    *(("telegram", mode) for mode in ("off", "partial", "block")),
    *((network, "off") for network in ("discord", "slack", "whatsapp", "email", "custom")),
)
STEPS = 50  # of one conversation


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def soak_channels(options: argparse.Namespace, folder: Path) -> None:
    for network, streaming in CHANNELS if options.channel_kills else ():
        counted = await kill_a_channel(
            folder / f"channel-{network}-{streaming}",
            network,
            messages=20 * options.channel_kills,
            kills=options.channel_kills,
            seed=options.seed,
            streaming=streaming,
            progress=say,
        )
        say(f"{network}, {streaming}: each message was answered once, or its answer is in doubt: {_told(counted)}")
    if options.outage:
        counted = await outlast_an_outage(folder / "outage", people=options.outage, each=100, progress=say)
        say(f"a network was down and came back: {_told(counted)}")


async def soak_postgres(options: argparse.Namespace, folder: Path) -> None:
    if not options.postgres_kills:
        return
    with running_server(folder / "pg") as server:
        home = PostgresHome(folder / "killed-postgres", server.schema, "killed")
        await kill_again_and_again(
            home, kills=options.postgres_kills, seed=options.seed, queue="followup", progress=say
        )
        home = PostgresHome(folder / "gateway-postgres", server.schema, "siege")
        counted = await kill_the_gateway(
            home, kills=options.postgres_kills, sessions=16, seed=options.seed, progress=say
        )
        say(f"PostgreSQL, {options.postgres_kills} kills of each: nothing was lost or doubled: {_told(counted)}")


async def soak(options: argparse.Namespace, folder: Path) -> None:
    if options.memory_kills:
        home = folder / "memory-killed"
        counted = await kill_the_indexer(home, kills=options.memory_kills, seed=options.seed, progress=say)
        say(f"{options.memory_kills} kills of the indexer: the index equals the disk: {_told(counted)}")
    if options.kills:
        await deliver_again_and_again(folder / "delivers", kills=options.kills, seed=options.seed, progress=say)
        say(f"{options.kills} kills of one who delivers: each parcel came once or is marked as ambiguous")
    for queue in ("followup", "steer"):  # each message a turn of its own, and the mode that people have by default
        if options.kills:
            home = PalHome(folder / f"killed-{queue}")
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
    if options.subagent_kills:
        async with served(model(5)) as server:
            await run(folder / "subagents", server, 100, 5, options.subagent_kills, options.seed)
        say(f"{options.subagent_kills} kills of 100 parents with 5 subagents each: each result arrived once")
    if options.gateway_kills:
        siege = PalHome(folder / "gateway-killed")
        counted = await kill_the_gateway(
            siege, kills=options.gateway_kills, sessions=32, seed=options.seed, progress=say
        )
        say(f"{options.gateway_kills} kills of the gateway: one place and one reply for each message: {_told(counted)}")
    if options.clock_kills:
        counted = await kill_the_clock(
            folder / "clock-killed", kills=options.clock_kills, seed=options.seed, progress=say
        )
        say(f"{options.clock_kills} kills of a clock: one row and one outcome for each due time: {_told(counted)}")
    if options.clients:
        counted = await besiege(
            folder / "gateway-crowded",
            clients=options.clients,
            seconds=options.minutes * 60,
            warm_turns=2_000,
            seed=options.seed,
            progress=say,
        )
        say(f"{options.clients} clients at the gateway: {_told(counted)}")
        check_steady(counted)


async def talk(options: argparse.Namespace, folder: Path) -> None:
    if options.turns:
        talked = await talk_for_long(folder / "long-talk", turns=options.turns, progress=say)
        say(str(talked))
        check_long(talked)


def _told(counted: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counted.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--holder-kills", type=int, default=25)
    parser.add_argument("--gateway-kills", type=int, default=100)
    parser.add_argument("--postgres-kills", type=int, default=50)
    parser.add_argument("--subagent-kills", type=int, default=40)
    parser.add_argument("--channel-kills", type=int, default=50, help="of each network, with 20 messages for each")
    parser.add_argument("--outage", type=int, default=100, help="people for whom 100 messages each wait")
    parser.add_argument("--memory-kills", type=int, default=100)
    parser.add_argument("--clock-kills", type=int, default=50)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pal-soak-"))
    say(f"seed {options.seed}, homes in {folder}")
    try:
        if options.steps:
            converse(examples=options.steps // STEPS, steps=STEPS)
            say(f"{options.steps:,} steps of conversations with bad models and kills: nothing was lost")
        asyncio.run(talk(options, folder))
        asyncio.run(soak_channels(options, folder))
        asyncio.run(soak_postgres(options, folder))
        asyncio.run(soak(options, folder))
    except AssertionError as error:
        say(f"FAILED, the homes are kept: {error}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
