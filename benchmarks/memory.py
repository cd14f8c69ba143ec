"""Memory beside qmd: making the text index, keeping it, and asking it, cold and warm.

Both read the same folder of made-up daily notes (benchmarks/memory_corpus.py), one after the other in every round, who
is first changes from round to round. Processor time stands beside wall time, because a machine that is shared makes
every wall time longer. qmd reads words here, no models; ours is asked by words alone too, and with vectors where that
is said.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles

from benchmarks import memory_corpus, memory_qmd
from benchmarks.figures import Figure
from benchmarks.memory_corpus import Corpus
from benchmarks.memory_stdin import Stdin
from benchmarks.peers import PeerMissing
from benchmarks.processes import Broken, Command, Timing, Warm, time_once

LINES = 100_000
FEWER_LINES = 10_000
CHANGED = 0.05
OURS = "pal"
QMD = memory_qmd.NAME
# Milliseconds by lines, for the median of natural questions.
LIMITS = {"keyword": {LINES: 25.0, FEWER_LINES: 5.0}, "hybrid": {LINES: 50.0, FEWER_LINES: 15.0}}

Note = Callable[[str], None]
Prepare = Callable[[], None]
Env = Callable[[Path], Mapping[str, str]]  # of a home
Questions = Mapping[str, Sequence[str]]


class Memories:
    def __init__(self, pal: Path, folder: Path, env: Env, note: Note, rounds: int) -> None:
        self._pal = pal
        self._folder = folder
        self._env = env
        self._note = note
        self._rounds = rounds
        self._editions = 0

    def measure(self, *, peers: bool) -> list[Figure]:
        beside = peers and self._has_qmd()
        corpus = memory_corpus.write_corpus(self._folder / "notes", LINES)
        fewer = memory_corpus.write_corpus(self._folder / "fewer-notes", FEWER_LINES)
        home = self._home("words", corpus, provider="none")
        figures = [*self._processes(home, corpus, beside=beside)]
        for notes in (corpus, fewer):
            figures += self._warm(notes, self._folder / "qmd" if beside and notes is corpus else None)
        figures += self._stdin(home, corpus)
        return figures

    def _has_qmd(self) -> bool:
        try:
            memory_qmd.install()
        except PeerMissing as error:
            self._note(f"{QMD}: left out: {error}")
            return False
        return True

    def _home(self, name: str, corpus: Corpus, *, provider: str) -> Path:
        home = self._folder / f"memory-{name}"
        (home / ".palinurus").mkdir(parents=True)
        options = {"workspace": str(corpus.workspace), "memorySearch": {"provider": provider}}
        config = {"agents": {"defaults": options}}
        (home / ".palinurus" / "palinurus.json").write_text(json.dumps(config), encoding="utf-8")
        subprocess.run([self._pal, "setup"], env=self._env(home), check=True, capture_output=True, timeout=60)
        return home

    def _processes(self, home: Path, corpus: Corpus, *, beside: bool) -> list[Figure]:
        """Whole processes: the index is made, looked after, and asked once."""
        peer = self._folder / "qmd"
        peer.mkdir()
        rare, question = corpus.rare[0], corpus.questions[0]

        def both(ours: tuple[str, ...], theirs: tuple[str, ...], says: str = "") -> list[Command]:
            commands = [Command(OURS, (str(self._pal), "memory", *ours), self._env(home), home, says)]
            if beside:
                env = memory_qmd.environment(self._env(peer))
                commands.append(Command(QMD, theirs, env, peer, says if says == rare else ""))
            return commands

        def anew() -> None:
            for index in (home / ".palinurus" / "derived", peer):
                shutil.rmtree(index, ignore_errors=True)
            peer.mkdir()

        def edited() -> None:
            self._editions += 1
            memory_corpus.change(corpus, CHANGED, self._editions)

        build, update = memory_qmd.build(corpus.workspace / "memory"), memory_qmd.update()
        index, search = ("index", "--json"), ("search", "--keyword", "--json")
        fewer = max(2, self._rounds // 2)
        return [
            *self._compared("text index made", both(index, build, '"compared"'), fewer, 1.1, before=anew),
            self._size(home, corpus, peer if beside else None),
            *self._compared("no change", both(index, update, '"compared"'), self._rounds, 0.5),
            *self._compared("5 % of the files changed", both(index, update, '"changed"'), fewer, 1.0, before=edited),
            *self._compared(
                "cold search, rare word", both((*search, rare), memory_qmd.search(rare), rare), self._rounds, 1.0
            ),
            *self._compared(
                "cold search, question", both((*search, question), memory_qmd.search(question)), self._rounds, 1.0
            ),
        ]

    def _compared(
        self,
        what: str,
        commands: Sequence[Command],
        rounds: int,
        limit: float,
        before: Prepare = lambda: None,
    ) -> list[Figure]:
        taken: dict[str, list[Timing]] = {}
        for number in range(rounds + 1):
            before()
            for command in commands[:: -1 if number % 2 else 1]:
                try:
                    timing = time_once(command)
                except Broken as error:
                    if command.name == OURS:
                        raise SystemExit(f"ours does not do it: {what}: {error}") from error
                    self._note(f"{command.name}: {what}: left out: {error}")
                    continue
                if number:  # the first round warms up
                    taken.setdefault(command.name, []).append(timing)
        wall = {name: median(each.wall_ms for each in times) for name, times in taken.items()}
        cpu = {name: median(each.cpu_ms for each in times) for name, times in taken.items()}
        return [
            Figure(f"memory: {what}, wall", wall.pop(OURS), wall, limit, limit_is_ratio=True),
            Figure(f"memory: {what}, CPU", cpu.pop(OURS), cpu, limit, limit_is_ratio=True),
        ]

    def _size(self, home: Path, corpus: Corpus, peer: Path | None) -> Figure:
        ours = _bytes(home / ".palinurus" / "derived" / "memory") / corpus.characters
        others = {QMD: memory_qmd.index_of(peer).stat().st_size / corpus.characters} if peer else {}
        return Figure("memory: index without vectors, times the text", ours, others, unit="×")

    def _warm(self, corpus: Corpus, peer: Path | None) -> list[Figure]:
        """In one process, ours with all vectors there; beside qmd's own library."""
        questions: Questions = {"rare": corpus.rare[:20], "natural": corpus.questions[:60]}
        name = f"warm-{corpus.files}"
        home = self._folder / name
        home.mkdir()
        asked = home / "questions.json"
        asked.write_text(json.dumps({"workspace": str(corpus.workspace), **questions}), encoding="utf-8")
        running = {OURS: Warm.of_module("benchmarks.warm_memory", self._env(home), home)}
        if peer is not None:
            alone = home / "asked.json"
            alone.write_text(json.dumps(questions), encoding="utf-8")
            running[QMD] = Warm(memory_qmd.warm(peer, alone), memory_qmd.environment(self._env(home)), home)
        taken: dict[str, list[dict[str, float]]] = {}
        for number in range(max(3, self._rounds // 2) + 1):
            for who, process in list(running.items()):
                try:
                    measured = process.turns(1)
                except Broken as error:
                    if who == OURS:
                        raise SystemExit(f"our memory does not answer: {error}") from error
                    self._note(f"{who}: its warm searches are left out: {error}")
                    running.pop(who).close()
                    continue
                if number:
                    taken.setdefault(who, []).extend(measured)
        for process in running.values():
            process.close()
        return _warm_figures({who: _medians(rounds) for who, rounds in taken.items()}, corpus)

    def _stdin(self, home: Path, corpus: Corpus) -> list[Figure]:
        """`pal memory search --stdin`, as another program would use it: a line in, a line out."""
        command = Command("stdin", (str(self._pal), "memory", "search", "--stdin", "--json"), self._env(home), home)
        with Stdin(command) as asked:
            asked.ask(corpus.questions[0])  # which also starts it
            taken = [asked.ask(question) for question in corpus.questions[:60]]
        return [
            Figure("memory: a question at --stdin by words, p50 wall", median(taken), {}, LIMITS["keyword"][LINES]),
            Figure("memory: a question at --stdin by words, p95 wall", _p95(taken), {}),
        ]


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each question's median over the rounds, and what was told once."""
    return {key: median(each[key] for each in rounds) for key in rounds[0]}


def _warm_figures(taken: Mapping[str, Mapping[str, float]], corpus: Corpus) -> list[Figure]:
    lines = LINES if corpus.lines > LINES // 2 else FEWER_LINES
    figures = [
        Figure(
            f"memory: vectors and words of {lines:,} lines, times the text",
            taken[OURS]["index bytes"] / corpus.characters,
            {},
            7,
            unit="×",
        )
    ]

    def add(what: str, kind: str, theirs: str, limit: float | None) -> None:
        for measure in ("wall", "cpu"):
            values = {who: _of_kind(each, theirs if who != OURS else kind, measure) for who, each in taken.items()}
            p50 = {who: median(found) for who, found in values.items() if found}
            p95 = {who: _p95(found) for who, found in values.items() if found}
            name = f"memory: {what}, {lines:,} lines"
            clock = "CPU" if measure == "cpu" else "wall"
            figures.append(Figure(f"{name}, p50 {clock}", p50.pop(OURS), p50, limit))
            if measure == "wall":
                figures.append(Figure(f"{name}, p95 {clock}", p95.pop(OURS), p95))

    add("rare word", "rare", "rare", 2)
    add("question by words", "natural", "natural", LIMITS["keyword"][lines])
    add("question by words and vectors", "hybrid", "", LIMITS["hybrid"][lines])
    return figures


def _of_kind(taken: Mapping[str, float], kind: str, measure: str) -> list[float]:
    return [value for key, value in taken.items() if kind and key.startswith(f"{kind} {measure} ")]


def _p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
