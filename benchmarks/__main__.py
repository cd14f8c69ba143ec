"""Measure everything in one run and print one table.

    python -m benchmarks                    about a quarter of an hour; the first run installs the peers
    python -m benchmarks --rounds 20 --out figures.json
    python -m benchmarks --no-peers         ours alone
    python -m benchmarks --only gateway

Every home is made anew in a temporary directory; the model is a process on loopback that answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import prefix, schedule
from benchmarks.channels import Channels
from benchmarks.figures import Figure, render
from benchmarks.gateway import Gateways
from benchmarks.memory import Memories
from benchmarks.model import loopback_model
from benchmarks.peers import PEERS, Peer, PeerMissing, furnish, install
from benchmarks.processes import ROOT, Broken, Command, Timing, Warm, interleaved

PYTHON = Path(sys.executable)
PAL = PYTHON.with_name("pal")
MODULES = ("asyncio", "click", "msgspec", "apsw", "httpx2", "palinurus.cli.shell", "palinurus.runtime.home_access")
UNUSED_PROVIDERS = {
    name: {"baseUrl": "http://127.0.0.1:9/v1", "api": wire, "apiKey": f"{name}-key-of-nobody", "models": [{"id": "m"}]}
    for name, wire in {"one": "anthropic-messages", "two": "google-generative-ai", "three": "ollama"}.items()
}
_UNUSED_CHECK = (str(PYTHON), "-m", "benchmarks.unused", "agent", "--message", "hi")
BATCH = 5
OURS = "pal"
PARTS = ("turns", "wires", "hands", "gateway", "channels", "memory", "prompts", "clock", "processes", "commands")
LIBRARIES = "import asyncio, click, msgspec, apsw"  # what no command of ours can do without
COMMANDS = (
    ("status",),
    ("sessions", "list"),
    ("skills", "list"),
    ("config", "get", "agents"),
    ("memory", "search", "--keyword", "harbour"),  # by words: the model of the other way is a process of its own
    ("tools", "list"),
)


class Bench:
    def __init__(self, folder: Path, base_url: str, rounds: int) -> None:
        self._folder = folder
        self._base_url = base_url
        self._rounds = rounds
        self.notes: list[str] = []

    def note_load(self) -> None:
        """Medians over interleaved rounds bear a busy machine, but a reader should know of it."""
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if load > cores / 4:
            self.note(f"the machine was busy: load {load:.1f} on {cores} cores before the first measurement")

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(f"note: {text}", file=sys.stderr)

    def present(self, wanted: Sequence[Peer]) -> list[Peer]:
        """Those that are installed, each with a home that knows the model."""
        found = []
        for peer in wanted:
            try:
                install(peer)
            except PeerMissing as error:
                self.note(f"{peer.name}: left out: {error}")
                continue
            furnish(peer, self._home(peer.name), self._base_url)
            found.append(peer)
        return found

    def home_of_ours(self, name: str, others: Mapping[str, Any] | None = None) -> Path:
        home = self._home(name)
        config = {
            "models": {
                "providers": {"bench": {"baseUrl": self._base_url, "models": [{"id": "test"}]}, **(others or {})}
            },
            "agents": {"defaults": {"model": "bench/test"}},
        }
        (home / ".palinurus").mkdir()
        (home / ".palinurus" / "palinurus.json").write_text(json.dumps(config), encoding="utf-8")
        subprocess.run([PAL, "setup"], env=_env(home), check=True, capture_output=True, timeout=60)
        return home

    def processes(self, peers: Sequence[Peer]) -> list[Figure]:
        ours = self.home_of_ours("pal")
        held = self.home_of_ours("held")
        crowded = self.home_of_ours("crowded", UNUSED_PROVIDERS)
        agent = (str(PAL), "agent", "--message", "hi")
        commands = [
            self._command("bare", (str(PYTHON), "-c", "pass"), ours),
            self._command("version", (str(PAL), "--version"), ours),
            self._command("status", (str(PAL), "status"), ours),
            self._command(OURS, agent, ours, says="arrived"),
            self._command("held", agent, held, says="arrived"),
            self._command("crowded", agent, crowded, says="arrived"),
            self._command("unused", _UNUSED_CHECK, crowded, says="unused and loaded: nothing"),
            *(self._command(module, (str(PYTHON), "-c", f"import {module}"), ours) for module in MODULES),
            *(
                self._command(
                    peer.name, (str(peer.bin / peer.ask[0]), *peer.ask[1:]), self._folder / peer.name, says="arrived"
                )
                for peer in peers
            ),
        ]
        with _holder(held):
            taken = interleaved(commands, self._rounds, self.note)
        if missing := {"bare", "version", "status", OURS, "held", "crowded", "unused"} - taken.keys():
            raise SystemExit(f"ours does not run: {', '.join(sorted(missing))}")
        return _process_figures(taken, [peer.name for peer in peers])

    def commands(self) -> list[Figure]:
        """What a command costs beside the libraries that each of them imports."""
        home = self.home_of_ours("commands")
        subprocess.run([PAL, "agent", "--message", "hi"], env=_env(home), cwd=home, check=True, capture_output=True)
        commands = [self._command(" ".join(words), (str(PAL), *words), home) for words in COMMANDS]
        bare = self._command("libraries", (str(PYTHON), "-c", LIBRARIES), home)
        taken = interleaved([bare, *commands], self._rounds, self.note)
        least = {"libraries": taken["libraries"].cpu_ms}
        return [
            Figure(f"pal {each.name}, CPU", taken[each.name].cpu_ms, least, 4, limit_is_ratio=True)
            for each in commands
            if each.name in taken
        ]

    def turns(self, peers: Sequence[Peer]) -> list[Figure]:
        """Warm turns over a history of 50 messages: a batch of ours, a batch of each peer, and again."""
        home = self.home_of_ours("warm")
        running = {OURS: Warm.of_module("benchmarks.warm_palinurus", _env(home), home)}
        for peer in peers:
            home = self._folder / peer.name
            running[peer.name] = Warm.of_module(peer.warm, _env(home), home, str(peer.bin / "python"))
        taken: dict[str, list[dict[str, float]]] = {}
        for number in range(self._rounds + 1):
            for name, process in list(running.items()):
                try:
                    measured = process.turns(BATCH)
                except Broken as error:
                    self.note(f"{name}: its warm turns are left out: {error}")
                    running.pop(name).close()
                    continue
                if number:  # the first batch warms up
                    taken.setdefault(name, []).extend(measured)
        for process in running.values():
            process.close()
        if OURS not in running:
            raise SystemExit("ours does not run a turn")
        return _turn_figures({name: taken[name] for name in running if name in taken})

    def wires(self) -> list[Figure]:
        """CPU of 10,000 deltas on each wire."""
        home = self._home("wires")
        process = Warm.of_module("benchmarks.warm_wires", {**_env(home), "BENCH_MODEL": self._base_url}, home)
        try:
            taken = process.turns(self._rounds + 1)[1:]  # the first warms up
        except Broken as error:
            raise SystemExit(f"ours does not read its wires: {error}") from error
        finally:
            process.close()
        return [
            Figure(f"wire {name}: CPU of 10,000 deltas", median(each[name] for each in taken), {}, 1000)
            for name in taken[0]
        ]

    def hands(self) -> list[Figure]:
        """What the gate adds to a tool call, and what the walls add to a command."""
        home = self._home("hands")
        process = Warm.of_module("benchmarks.warm_hands", _env(home), home)
        try:
            taken = process.turns(self._rounds + 1)[1:]  # the first warms up
        except Broken as error:
            raise SystemExit(f"ours does not use its hands: {error}") from error
        finally:
            process.close()
        figures = [Figure("hands: a call through gate and audit, beyond the tool", _p50(taken, "gate_ms"), {}, 1)]
        if "walls_ms" not in taken[0]:
            self.note("bubblewrap does not work here: sandboxed commands are left out")
            return figures
        host = {"on the host": _p50(taken, "host_ms")}
        return [*figures, Figure("hands: sandboxed true", _p50(taken, "walls_ms"), host, 60)]

    def gateway(self, *, peers: bool) -> list[Figure]:
        """Servers side by side. OpenClaw is among them when `sh tools/openclaw` has installed it."""
        gateways = Gateways(PAL, self._folder, self._base_url, _env, self.note)
        return asyncio.run(gateways.measure(peers=peers))

    def channels(self) -> list[Figure]:
        """A message that comes by a chat network and is answered there."""
        return Channels(PAL, self._folder, self._base_url, _env).measure()

    def prompts(self) -> list[Figure]:
        """What of each request the provider has read before."""
        prompts = prefix.measure()
        self.note(f"the talk of benchmarks/prefix.py: {prompts}")
        return prefix.figures(prompts)

    def clock(self) -> list[Figure]:
        """Thousands of cron jobs that are due in one minute, and the next of a hundred thousand."""
        return asyncio.run(schedule.measure(self._base_url, due=schedule.DUE_AT_ONCE, jobs=schedule.JOBS))

    def memory(self, *, peers: bool) -> list[Figure]:
        """The index of 100,000 lines of notes and what it answers, beside qmd."""
        return Memories(PAL, self._folder, _env, self.note, self._rounds).measure(peers=peers)

    def _home(self, name: str) -> Path:
        home = self._folder / name
        home.mkdir()
        return home

    def _command(self, name: str, argv: tuple[str, ...], home: Path, says: str = "") -> Command:
        return Command(name, argv, _env(home), home, says)


def _p50(taken: Sequence[Mapping[str, float]], name: str) -> float:
    return median(each[name] for each in taken)


def _env(home: Path) -> dict[str, str]:
    """Nothing of the caller's: no key, no proxy, no home."""
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT),  # for those of our measurements that are modules
    }


@contextmanager
def _holder(home: Path) -> Iterator[None]:
    """A `pal chat` that holds this home and waits for a line."""
    process = subprocess.Popen(
        [PAL, "chat"],
        env=_env(home),
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        until = time.monotonic() + 30
        while not (home / ".palinurus" / "pal.sock").exists():
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit("`pal chat` does not hold its home")
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.communicate()


def _process_figures(taken: Mapping[str, Timing], peers: Sequence[str]) -> list[Figure]:
    present = [name for name in peers if name in taken]
    bare = taken["bare"].wall_ms
    ours = taken[OURS]
    figures = [
        Figure("pal --version", taken["version"].wall_ms, {"python -c pass": bare}, 3, limit_is_ratio=True),
        Figure(
            "one-shot, wall", ours.wall_ms, {name: taken[name].wall_ms for name in present}, 0.2, limit_is_ratio=True
        ),
        Figure("one-shot, CPU", ours.cpu_ms, {name: taken[name].cpu_ms for name in present}),
        Figure("one-shot through a holder, wall", taken["held"].wall_ms, {"one-shot": ours.wall_ms}),
        Figure(
            "one-shot with three unused providers, CPU",
            taken["crowded"].cpu_ms,
            {"one-shot": ours.cpu_ms},
            1.1,
            limit_is_ratio=True,
        ),
        Figure("pal status, wall", taken["status"].wall_ms, {"python -c pass": bare}),
    ]
    imports = {name: taken[name].cpu_ms - taken["bare"].cpu_ms for name in MODULES if name in taken}
    return [*figures, *(Figure(f"import {name}, CPU", spent, {}) for name, spent in imports.items())]


def _turn_figures(taken: Mapping[str, list[dict[str, float]]]) -> list[Figure]:
    def figure(name: str, key: str, limit: float | None = None, *, alone: bool = False) -> Figure:
        medians = {who: median(turn[key] for turn in turns) for who, turns in taken.items()}
        return Figure(name, medians.pop(OURS), {} if alone else medians, limit)

    return [
        # Peers accept nothing before the turn, so only the time from handing the message in can be compared.
        figure("warm: message accepted → model has the request", "accepted_to_wire_ms", 4, alone=True),
        figure("warm: message handed in → model has the request", "to_wire_ms"),
        figure("warm: model begins to answer → first words at the caller", "first_words_ms", 2, alone=True),
        figure("warm: CPU of a turn, 50 messages before it", "cpu_ms", 7),
        figure("warm: wall of a turn, 50 messages before it", "wall_ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured; the median counts")
    parser.add_argument("--out", type=Path, help="write the figures as JSON to this file")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--only", choices=PARTS, help="one part")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="pal-bench-", ignore_cleanup_errors=True) as folder,
        loopback_model() as url,
    ):
        bench = Bench(Path(folder), url, options.rounds)
        bench.note_load()
        peers = bench.present(() if options.no_peers else PEERS)
        parts = {
            "turns": lambda: bench.turns(peers),
            "wires": bench.wires,
            "hands": bench.hands,
            "gateway": lambda: bench.gateway(peers=not options.no_peers),
            "channels": bench.channels,
            "memory": lambda: bench.memory(peers=not options.no_peers),
            "prompts": bench.prompts,
            "clock": bench.clock,
            "processes": lambda: bench.processes(peers),
            "commands": bench.commands,
        }
        figures = [figure for name, part in parts.items() if options.only in (None, name) for figure in part()]
    print(render(figures))
    for text in bench.notes:
        print(f"note: {text}")
    if options.out:
        about = {"python": platform.python_version(), "rounds": options.rounds, "notes": bench.notes}
        about["peers"] = {peer.name: peer.version for peer in peers}
        record = {**about, "figures": [figure.record() for figure in figures]}
        options.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
