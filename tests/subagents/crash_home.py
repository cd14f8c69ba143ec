"""A process that is killed: it opens a home, gives every parent its message, and rests when nothing is left to do.

python crash_home.py HOME PARENTS
"""

from __future__ import annotations

import asyncio
import sys

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.runtime.runtime import Runtime


async def main(root: str, parents: int) -> None:
    env = {"PALINURUS_HOME": root, "HOME": root, "PATH": "/usr/bin:/bin"}
    runtime = Runtime(find_home(env), env)
    services = runtime.services
    await services.jobs.start()
    await runtime.recover()
    print("open", flush=True)
    for number in range(parents):
        key = f"agent:main:explicit:p{number}"
        await services.dispatcher.submit(Inbound("please", f"m-{number}", session_key=key, plain=True))
    while services.dispatcher.busy or await _open_announcements(runtime):
        await services.dispatcher.idle()
        await services.jobs.idle()
    await runtime.close()
    print("done", flush=True)


async def _open_announcements(runtime: Runtime) -> int:
    states = ("waiting", "running", "retry")
    counts = await runtime.services.jobs.counts()
    return sum(number for (kind, state), number in counts.items() if kind == "announce" and state in states)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
