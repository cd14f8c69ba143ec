"""Skills of others: look for them, take them in, keep them up to date.

Nothing here needs a house. Taking in has two steps with a person between them: `fetch` lays a skill into quarantine and
says all there is to say about it, `accept` puts it in place. No door but a terminal does the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from palinurus.config.home import env_value
from palinurus.config.load import load_config, resolve_secret, secret_providers
from palinurus.config.settings import agent_settings, default_agent
from palinurus.domain.clock import random_id
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError, WebError
from palinurus.operations.config import Ground
from palinurus.skills.manifest import read_manifest
from palinurus.skills.registry.arrival import Arrival, discard, fetch, put_in_place
from palinurus.skills.registry.changes import Changes, compare
from palinurus.skills.registry.client import DEFAULT, Registry, read_address
from palinurus.skills.registry.drift import drift
from palinurus.skills.registry.lock import Pin, client_lock, known_pins
from palinurus.skills.registry.names import Version, Wanted, read_version, read_wanted
from palinurus.skills.registry.packing import installed
from palinurus.skills.registry.scan import ScanReport, scan_bundle
from palinurus.skills.registry.wire import Found
from palinurus.skills.skill import SKILL_FILE, Manifest

MAX_FOUND = 100


class SearchResult(Struct, frozen=True, rename="camel"):
    registry: str
    results: tuple[Found, ...]


class Update(Struct, frozen=True):
    """One installed skill and what the registry has for it. Without an `arrival` there is nothing to decide about."""

    folder: Path
    pin: Pin
    said: str  # in a few words
    arrival: Arrival | None = None
    changes: Changes | None = None
    failed: bool = False


def open_registry(ground: Ground, address: str = "", *, asked: bool = True) -> Registry:
    """The one at the address, else CLAWHUB_REGISTRY, else the config's, else ClawHub. Raises BadRequest.

    A token goes only where a person has sent it: the variable's to the registry of this environment and to one that was
    asked for just now, the config's to the config's.
    """
    loaded = load_config(ground.home, ground.env)
    options = loaded.config.skills.registry
    ours = read_address(options.url or DEFAULT)
    usual = read_address(_named(ground.env) or ours)
    chosen = read_address(address) if address else usual
    token = ""
    if asked or chosen == usual:
        token = env_value(ground.env, "CLAWHUB_TOKEN") or env_value(ground.env, "CLAWHUB_AUTH_TOKEN")
    if not token and options.token is not None and chosen == ours:
        token = resolve_secret(options.token, loaded.env, secret_providers(loaded)) or ""
    return Registry(chosen, token)


def search(ground: Ground, words: str, limit: int = 25, address: str = "") -> SearchResult:
    if not words.strip():
        raise BadRequest("there is nothing to search for")
    registry = open_registry(ground, address)
    answer = registry.search(words, max(1, min(limit, MAX_FOUND)))
    return SearchResult(registry.address, answer.results[:MAX_FOUND])


def skills_root(ground: Ground, *, workspace: bool = False, agent: str = "") -> Path:
    """Where it is installed: for all agents, or in the workspace of one."""
    if not workspace:
        return ground.home.root / "skills"
    loaded = load_config(ground.home, ground.env)
    root = agent_settings(loaded.config, ground.home, agent or default_agent(loaded.config)).workspace / "skills"
    if root.is_symlink():  # an agent could have made it one
        raise BadRequest(f"{root} is a link", hint="make it a folder, or install for all agents")
    return root


def fetch_skill(
    ground: Ground,
    text: str,
    *,
    version: str = "",
    digest: str = "",
    address: str = "",
    root: Path,
    force: bool = False,
    now_ms: int,
) -> Arrival:
    """Into quarantine. Raises BadRequest when something of that name is there already and `force` does not say so.

    With a `digest`, as an earlier look at it told, nothing else will do.
    """
    wanted = read_wanted(text, version)
    target = root / wanted.slug
    if target.exists() and not force:
        raise BadRequest(
            f"{target} is there already", hint=f"`pal skills update {wanted.slug}`, or --force to replace it"
        )
    registry = open_registry(ground, address)
    arrival = fetch(registry, wanted, _quarantine(ground), now_ms=now_ms, new_id=random_id())
    if digest and arrival.pin.digest.removeprefix("sha256:") != digest.removeprefix("sha256:").lower():
        discard(arrival)
        raise BadRequest(f"{wanted.slug} {arrival.pin.version} has another digest there: {arrival.pin.digest}")
    return arrival


def accept(ground: Ground, arrival: Arrival, root: Path, *, replace: bool = True) -> Path:
    """A person has said yes. Gives the folder. Raises BadRequest or StorageError."""
    return put_in_place(arrival, ground.home.root, root, replace=replace)


def reject(arrival: Arrival) -> None:
    discard(arrival)


def updates(ground: Ground, names: Sequence[str], *, force: bool = False, now_ms: int) -> Iterator[Update]:
    """For the named ones, or for all when none is named, one after the other. One that fails does not keep the rest."""
    for folder, pin in chosen_pins(ground, names):
        try:
            yield _update(ground, folder, pin, force=force, now_ms=now_ms)
        except (WebError, NotFound, BadRequest) as error:
            yield Update(folder, pin, str(error), failed=True)


def _named(env: Mapping[str, str]) -> str:
    return next(filter(None, (env_value(env, name) for name in ("CLAWHUB_REGISTRY", "CLAWHUB_URL"))), "")


def _quarantine(ground: Ground) -> Path:
    return ground.home.root / "quarantine" / "skills"


def chosen_pins(ground: Ground, names: Sequence[str], *, gone: bool = False) -> list[tuple[Path, Pin]]:
    pins = known_pins(ground.home.root).skills
    known = [(Path(folder), pin) for folder, pin in pins.items() if gone or Path(folder).exists()]
    if not names:
        return known
    for name in names:
        if not any(pin.slug == name for _, pin in known):
            raise NotFound(f"no skill {name!r} was installed from a registry", hint="`pal skills verify` lists them")
    return [(folder, pin) for folder, pin in known if pin.slug in names]


def _update(ground: Ground, folder: Path, pin: Pin, *, force: bool, now_ms: int) -> Update:
    held = _held(folder, pin)
    if held and not force:
        return Update(folder, pin, held)
    registry = open_registry(ground, pin.registry, asked=False)
    latest = registry.about(pin.slug).latest_version
    drifted = drift(str(folder), known_pins(ground.home.root))
    changed = drifted.reason if drifted is not None else ""
    if latest is None or not _is_newer(latest.version, pin.version):
        return Update(folder, pin, f"up to date ({pin.version}){f', but {changed}' if changed else ''}")
    if changed and not force:
        return Update(folder, pin, f"{latest.version} is there, but {changed}; --force replaces it", failed=True)
    wanted = Wanted(pin.slug, version=read_version(latest.version))
    arrival = fetch(registry, wanted, _quarantine(ground), now_ms=now_ms, new_id=random_id())
    changes = compare(pin, *_installed(folder), arrival)
    return Update(folder, pin, f"{pin.version} -> {arrival.pin.version}", arrival, changes)


def _held(folder: Path, pin: Pin) -> str:
    """`clawhub pin` holds a skill at its version; we keep to that."""
    skills = client_lock(folder.parent).get("skills")
    entry = skills.get(pin.slug) if isinstance(skills, dict) else None
    if not isinstance(entry, dict) or entry.get("pinned") is not True:
        return ""
    return f"held at {pin.version} by `clawhub pin`"


def _is_newer(latest: str, have: str) -> bool:
    try:
        return Version.read(latest) > Version.read(have)
    except BadRequest:
        return False


def _installed(folder: Path) -> tuple[Manifest | None, ScanReport | None]:
    """What is known about what is there; nothing when somebody has spoilt it."""
    try:
        bundle = installed(folder)
        return read_manifest(bundle.files[SKILL_FILE], folder.name), scan_bundle(bundle)
    except PalinurusError:
        return None, None
