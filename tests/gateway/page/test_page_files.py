"""The files of the page as they go over the wire."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from serving import Running, request
from starlette.datastructures import Headers

from palinurus.extensions.dashboard.routes import ADDRESSES, STATIC, StaticFiles


async def test_every_address_of_the_page_gives_the_same_file_under_a_strict_policy(served: Running) -> None:
    pages = [await request(served.port, path.replace("{key:path}", "agent:main:a/b")) for path in ADDRESSES]
    assert {page.status for page in pages} == {200}
    assert len({page.body for page in pages}) == 1
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        for must in ("frame-ancestors 'none'", "require-trusted-types-for 'script'", "base-uri 'none'"):
            assert must in policy
        assert "unsafe" not in policy
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["x-content-type-options"] == "nosniff"


async def test_a_file_is_packed_for_those_who_take_it_and_asked_about_but_not_sent_again(served: Running) -> None:
    plain = await request(served.port, "/page/login.js")
    packed = await request(served.port, "/page/login.js", Accept_Encoding="br, gzip;q=0.8")
    assert gzip.decompress(packed.body) == plain.body == (STATIC / "login.js").read_bytes()
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["etag"] != plain.headers["etag"]
    assert plain.headers["vary"] == "accept-encoding"
    assert plain.headers["cache-control"] == "no-cache"
    for tag in (packed.headers["etag"], f'"other", W/{packed.headers["etag"]}'):
        again = await request(served.port, "/page/login.js", Accept_Encoding="gzip", If_None_Match=tag)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["cache-control"] == "no-cache"
    refusing = await request(served.port, "/page/login.js", Accept_Encoding="gzip;q=0")
    assert "content-encoding" not in refusing.headers
    head = await request(served.port, "/page/login.js", method="HEAD")
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize(
    "name",
    ["../routes.py", "..%2froutes.py", "%2e%2e/files.py", "chat/../../files.py", "/etc/passwd", "", "login", "LOGIN.JS",
     "login.js/", "login.js%00.css", "a/b/c/d/e.js", "..\\files.py", "routes.py", "login.py", ".hidden.js", "none.js"],
)  # fmt: skip
async def test_a_name_that_is_none_of_a_file_here_finds_nothing(served: Running, name: str) -> None:
    told = await request(served.port, f"/page/{name}")
    assert told.status == 404
    assert told.headers["content-type"] == "application/problem+json"


def test_a_file_that_changes_on_the_disk_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "one.css").write_text("a{}")
    files = StaticFiles(tmp_path)
    before = files.answer("one.css", Headers())
    (tmp_path / "one.css").write_text("b{color:red}")
    after = files.answer("one.css", Headers())
    assert before is not None
    assert after is not None
    assert (before.body, after.body) == (b"a{}", b"b{color:red}")
    assert before.headers["etag"] != after.headers["etag"]
    assert "content-encoding" not in after.headers
    (tmp_path / "one.css").unlink()
    assert files.answer("one.css", Headers()) is None


def test_a_link_out_of_the_folder_can_only_be_made_by_whoever_owns_it() -> None:
    """Files are found by name, not listed; so there must be no link among ours."""
    assert [path for path in STATIC.rglob("*") if path.is_symlink()] == []


def test_the_page_brings_nothing_inline_and_nothing_from_elsewhere() -> None:
    html = (STATIC / "index.html").read_text()
    assert re.findall(r"<style|<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|javascript:", html) == []
    assert {link[:6] for link in re.findall(r'(?:src|href)="([^"]+)"', html)} == {"/page/"}


def test_what_the_first_view_needs_is_asked_for_at_once_and_nothing_else() -> None:
    """A module that imports another is a round trip; a slow tunnel feels each of them."""
    needed: set[str] = set()

    def follow(name: str) -> None:
        if name in needed:
            return
        needed.add(name)
        path = STATIC / name
        for found in re.findall(
            r"""^(?:import|export)\b[^;"']*?["'](\.{1,2}/[^"']+)["']""", path.read_text(), re.MULTILINE
        ):
            follow(str((path.parent / found).resolve().relative_to(STATIC)))

    follow("login.js")
    follow("app.js")
    html = (STATIC / "index.html").read_text()
    asked = re.findall(r'<link rel="modulepreload" href="/page/([^"]+)">', html)
    assert sorted(asked) == sorted(needed - {"login.js", "app.js"})
    styles = re.findall(r'<link rel="stylesheet" href="/page/([^"]+)">', html)
    sizes = {name: len(gzip.compress((STATIC / name).read_bytes(), 9)) for name in (*needed, *styles, "index.html")}
    assert sum(sizes.values()) < 95_000, sizes  # with its headers: 100 kB over the wire
