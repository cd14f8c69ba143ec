"""A hosted registry, asked by HTTP: who may do what, versions that never change, and errors in one line of text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hosted import Hosted, bundle_of, skill_text
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.extensions.skill_registry.bundle import read_zip
from palinurus.extensions.skill_registry.client import RegistryClient
from palinurus.extensions.skill_registry.protocol import Publication
from palinurus.gateway.auth.guard import GUESSES

EVIL = "../../evil.md"


def get(hosted: Hosted, path: str, **more: Any) -> httpx2.Response:
    return httpx2.get(f"{hosted.url}{path}", timeout=60, verify=False, **more)


def form(hosted: Hosted, token: str, files: list[tuple[str, bytes]], payload: str) -> httpx2.Response:
    parts = [("files", (path, data, "text/plain")) for path, data in files]
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.post(
        f"{hosted.url}/api/v1/skills", data={"payload": payload}, files=parts, headers=headers, timeout=60, verify=False
    )


def test_what_was_published_is_found_described_and_downloaded(hosted: Hosted) -> None:
    made = bundle_of("tide", scripts__run_py="print(1)\n")
    hosted.client("ada").publish(Publication("tide", "1.0.0", "Tide", changelog="first", tags=("latest", "good")), made)
    reader = hosted.client()
    found = reader.search("helps with tide").results
    assert [(each.slug, each.version, each.owned_by) for each in found] == [("tide", "1.0.0", "ada")]
    assert reader.search("nothing of the kind").results == ()
    about = reader.about("tide")
    assert about.latest_version is not None
    assert about.latest_version.version == "1.0.0"
    assert get(hosted, "/api/v1/skills/tide").json()["latestVersion"]["changelog"] == "first"
    assert read_zip(reader.download("tide", "1.0.0")) == made
    listed = reader.version("tide", "1.0.0").version
    assert listed is not None
    assert listed.files == made.records()
    assert get(hosted, "/api/v1/download?slug=tide&tag=good").content == reader.download("tide", "1.0.0")
    assert get(hosted, "/api/v1/skills/tide/file?path=scripts/run.py").text == "print(1)\n"
    resolved = get(hosted, f"/api/v1/resolve?slug=tide&hash={made.fingerprint}").json()
    assert resolved == {"match": {"version": "1.0.0"}, "latestVersion": {"version": "1.0.0"}}


def test_a_version_never_changes_and_latest_only_goes_up(hosted: Hosted) -> None:
    for version in ("1.1.0", "1.0.0", "2.0.0-beta.1", "1.2.0"):
        hosted.publish("tide", version)
    with pytest.raises(BadRequest, match="published already"):
        hosted.publish("tide", "1.0.0", README_md="other")
    assert get(hosted, "/api/v1/skills/tide").json()["latestVersion"]["version"] == "2.0.0-beta.1"
    versions = get(hosted, "/api/v1/skills/tide/versions").json()["items"]
    assert [each["version"] for each in versions] == ["1.2.0", "2.0.0-beta.1", "1.0.0", "1.1.0"]


def test_only_its_owner_changes_a_skill(hosted: Hosted) -> None:
    hosted.publish("tide", owner="ada")
    with pytest.raises(BadRequest, match="belongs to ada"):
        hosted.publish("tide", "1.0.1", owner="bob")
    with pytest.raises(BadRequest, match="publishes for bob, not for ada"):
        hosted.client("bob").publish(Publication("moon", "1.0.0", owner_handle="ada"), bundle_of("moon"))
    with pytest.raises(BadRequest, match="token is needed"):
        hosted.client().publish(Publication("moon", "1.0.0"), bundle_of("moon"))
    answer = httpx2.delete(
        f"{hosted.url}/api/v1/skills/tide", headers={"Authorization": f"Bearer {hosted.token('bob')}"}
    )
    assert answer.status_code == 403


def test_an_owner_puts_a_skill_away_and_brings_it_back(hosted: Hosted) -> None:
    hosted.publish("tide")
    headers = {"Authorization": f"Bearer {hosted.token('ada')}"}
    assert httpx2.delete(f"{hosted.url}/api/v1/skills/tide", headers=headers).json() == {"ok": True}
    assert hosted.client().search("tide").results == ()
    with pytest.raises(NotFound):
        hosted.client().about("tide")
    with pytest.raises(BadRequest, match="belongs to ada"):
        hosted.publish("tide", "3.0.0", owner="bob")
    assert httpx2.post(f"{hosted.url}/api/v1/skills/tide/undelete", headers=headers).json() == {"ok": True}
    assert hosted.client().about("tide").skill is not None


def test_a_revoked_token_is_dead_at_once_and_guessing_is_slowed_for_guessers_only(hosted: Hosted) -> None:
    made, secret = hosted.server.tokens.create("ada", "", 1)
    assert RegistryClient(hosted.url, secret).whoami() == "ada"
    hosted.server.tokens.revoke(made.id, 2)
    with pytest.raises(BadRequest, match="not known here"):
        RegistryClient(hosted.url, secret).whoami()
    statuses = [
        get(hosted, "/api/v1/whoami", headers={"Authorization": f"Bearer clh_{number}"}).status_code
        for number in range(GUESSES + 2)
    ]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert RegistryClient(hosted.url, hosted.token("ada")).whoami() == "ada"


def test_the_secret_of_a_token_is_written_nowhere(hosted: Hosted) -> None:
    secret = hosted.token("ada")
    hosted.publish("tide")
    kept = [path.read_bytes() for path in hosted.folder.rglob("*") if path.is_file()]
    assert kept
    assert not any(secret.encode() in data or secret.removeprefix("clh_").encode() in data for data in kept)


def test_a_blocked_skill_is_handed_out_to_nobody(hosted: Hosted) -> None:
    hosted.publish("tide")
    hosted.server.store.set_blocked("tide", "reads ssh keys")
    assert hosted.client().search("tide").results == ()
    moderation = hosted.client().about("tide").moderation
    assert moderation is not None
    assert (moderation.is_malware_blocked, moderation.summary) == (True, "reads ssh keys")
    with pytest.raises(BadRequest, match="reads ssh keys"):
        hosted.client().download("tide", "1.0.0")
    assert get(hosted, "/api/v1/skills/tide/file?path=SKILL.md").status_code == 403
    assert get(hosted, "/api/v1/skills/tide/verify").json()["decision"] == "fail"


@pytest.mark.parametrize(
    ("files", "payload", "why"),
    [
        ([("SKILL.md", b"x"), (EVIL, b"x")], '{"slug":"a","version":"1.0.0"}', "leads out"),
        ([("README.md", b"x")], '{"slug":"a","version":"1.0.0"}', "no SKILL.md"),
        ([("SKILL.md", b"x")], '{"slug":"a","version":"1.0.0"}', "front matter"),
        ([("SKILL.md", skill_text("a").encode())], '{"slug":"../a","version":"1.0.0"}', "not a valid skill name"),
        ([("SKILL.md", skill_text("a").encode())], '{"slug":"a","version":"1/../2"}', "not a version"),
        ([("SKILL.md", skill_text("a").encode())], '{"slug":"a"}', "the payload is invalid"),
        ([("SKILL.md", skill_text("a").encode())], "[" * 10_000, "the payload is invalid"),
        ([("SKILL.md", skill_text("a").encode()), ("x", b"\x7fELF\0")], '{"slug":"a","version":"1.0.0"}', "a program"),
    ],
)
def test_a_form_that_may_not_be_published_is_refused_in_one_line(
    hosted: Hosted, files: list[tuple[str, bytes]], payload: str, why: str
) -> None:
    answer = form(hosted, hosted.token(), files, payload)
    assert answer.status_code == 400
    assert why in answer.text
    assert len(answer.text.splitlines()) == 1
    assert not list((hosted.folder / "skills").iterdir())
    assert not (hosted.folder.parent / "evil.md").exists()


def test_too_many_files_and_too_much_body_are_refused(hosted: Hosted) -> None:
    token = hosted.token()
    many = [(f"{number}.md", b"x") for number in range(1_005)]
    assert form(hosted, token, many, '{"slug":"a","version":"1.0.0"}').status_code == 400
    large = [(f"{number}.md", b"x" * 4_000_000) for number in range(7)]
    try:
        status = form(hosted, token, large, '{"slug":"a","version":"1.0.0"}').status_code
    except httpx2.TransportError:  # it hung up on us in the middle, which will do
        status = 413
    assert status == 413


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/skills/..%2f..%2ftokens.json",
        "/api/v1/skills/%2e%2e",
        "/api/v1/download?slug=../tokens.json",
        "/api/v1/download?slug=tide&version=../../../tokens",
        "/api/v1/skills/tide/versions/..%2f..",
        "/api/v1/skills/tide/file?path=../skill.json",
        "/api/v1/resolve?slug=%00",
        "/tokens.json",
        "/api/v1/packages",
    ],
)
def test_no_address_leads_out_of_the_shelf(hosted: Hosted, path: str) -> None:
    hosted.publish("tide")
    answer = get(hosted, path)
    assert answer.status_code == 404
    assert "owner" not in answer.text


def test_pages_of_other_sites_and_forged_names_are_turned_away(hosted: Hosted) -> None:
    assert get(hosted, "/api/v1/skills", headers={"Host": "evil.example"}).status_code == 421
    assert get(hosted, "/api/v1/skills", headers={"Origin": "https://evil.example"}).status_code == 403
    assert get(hosted, "/api/v1/skills").headers["x-content-type-options"] == "nosniff"


def test_a_registry_behind_a_proxy_is_called_by_its_own_name(tmp_path: Path) -> None:
    with Hosted(tmp_path / "r", url="https://skills.example.org") as hosted:
        answer = get(hosted, "/.well-known/clawhub.json", headers={"Host": "skills.example.org"})
        assert answer.json()["apiBase"] == "https://skills.example.org"


def test_many_who_publish_the_same_version_at_once_leave_one_of_them(hosted: Hosted) -> None:
    clients = [hosted.client("ada") for _ in range(6)]

    def publish(number: int) -> bool:
        try:
            clients[number].publish(Publication("tide", "1.0.0"), bundle_of("tide", README_md=f"{number}\n"))
        except PalinurusError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(publish, range(6)))
    assert sum(done) == 1
    kept = read_zip(hosted.client().download("tide", "1.0.0")).files["README.md"]
    assert kept == f"{done.index(True)}\n".encode()


def test_what_was_written_halfway_does_not_count(hosted: Hosted) -> None:
    hosted.publish("tide")
    (hosted.folder / "skills" / "tide" / "1.1.0.zip").write_bytes(b"half")  # it died before skill.json named it
    assert len(get(hosted, "/api/v1/skills/tide/versions").json()["items"]) == 1
    hosted.publish("tide", "1.1.0")
    assert read_zip(hosted.client().download("tide", "1.1.0")).files


def test_an_archive_that_was_spoilt_on_the_disk_is_not_handed_out(hosted: Hosted) -> None:
    hosted.publish("tide")
    (hosted.folder / "skills" / "tide" / "1.0.0.zip").write_bytes(b"spoilt")
    assert get(hosted, "/api/v1/download?slug=tide").status_code == 500


def test_the_list_is_given_in_pieces(hosted: Hosted) -> None:
    for number in range(5):
        hosted.publish(f"tide-{number}")
    first = get(hosted, "/api/v1/skills?limit=3").json()
    rest = get(hosted, f"/api/v1/skills?limit=3&cursor={first['nextCursor']}").json()
    assert len({each["slug"] for each in first["items"] + rest["items"]}) == 5
    assert rest["nextCursor"] is None


def test_a_socket_is_turned_away(hosted: Hosted) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(hosted.url.replace("http", "ws"), open_timeout=60):
        pass
    assert refused.value.response.status_code == 403
