"""No address is reached that is not public, however it is spelled and however it is come by. Nothing here is real."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_web import FakeNet, answer, redirect

from palinurus.domain.errors import AddressRefused, ConfigError
from palinurus.tools.settings import FetchSettings
from palinurus.tools.web.guard import AddressGuard, parse_address, why_not_public

PUBLIC = "93.184.215.14"

PRIVATE_HOSTS = """
127.0.0.1/ 127.0.0.1:8080/x 127.1/ 127.0.1/ 2130706433/ 0x7f000001/
0x7f.1/ 0x7f.0.0.1/ 0177.0.0.1/ 017700000001/ 127.0.0.1./ 127.000.000.001/
0/ 0.0.0.0/ 0x0/ 00000/ 127.0.0.1.:80/ %31%32%37.0.0.1/
１２７.０.０.１/ ①②⑦.⓪.⓪.①/ 127。0。0。1/ 0x7F.0.0.1/
localhost/ LOCALHOST/ localhost./ a.localhost/ ｌｏｃａｌｈｏｓｔ/
metadata.google.internal/ printer.local/ nas.lan/ router.home.arpa/
169.254.169.254/latest/meta-data/ 169.254.0.1/ 2852039166/ 0xA9FEA9FE/ [fe80::1]/
10.0.0.1/ 172.16.0.1/ 172.31.255.255/ 192.168.1.1/ 100.64.0.1/ 100.100.100.200/
192.0.0.192/ 192.0.2.1/ 198.18.0.1/ 198.51.100.1/ 203.0.113.1/ 224.0.0.1/
240.0.0.1/ 255.255.255.255/ 168.63.129.16/ 192.88.99.1/
[::1]/ [::]/ [0:0:0:0:0:0:0:1]/ [::ffff:127.0.0.1]/ [::ffff:7f00:1]/
[::ffff:169.254.169.254]/ [::127.0.0.1]/ [fc00::1]/ [fd00:ec2::254]/ [fec0::1]/
[ff02::1]/ [64:ff9b::7f00:1]/ [64:ff9b::169.254.169.254]/ [64:ff9b:1::1]/
[2002:7f00:1::]/ [2002:c0a8:101::1]/ [2001:0:4136:e378::1]/ [2001:db8::1]/ [100::1]/
[3fff::1]/ [5f00::1]/ [fe80::1%25eth0]/ [::1%25lo]/ [v1.::1]/ [::1
"""
PRIVATE_URLS = [f"http://{host}" for host in PRIVATE_HOSTS.split()]

ODD_URLS = [
    "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "javascript:alert(1)", "data:text/plain,x",
    "unix:/run/x.sock", "//example.com/", "example.com", "http://", "http:///x", "http://user:secret@example.com/",
    "http://secret@example.com/", "http://example.com\\@127.0.0.1/", "http://exam\tple.com/", "http://example.com:0/",
    "http://example.com:99999/", "http://example.com:x/", "http://example.com:22/", "http://example.com:6379/",
    "http://exa mple.com/", "http://-x.com/", "http://a..b/", "http://example.com../", "http://" + "a" * 300 + ".com/",
    "http://example.com/" + "a" * 9000, "http://exam%70le.com/", "http://[example.com]/",
    "http://example.com\r\nHost: x/",
]  # fmt: skip


@pytest.mark.parametrize("url", [*PRIVATE_URLS, *ODD_URLS])
async def test_a_private_or_odd_address_is_refused_and_nothing_is_connected(net: FakeNet, url: str) -> None:
    for host in ("example.com", "localhost", "a.localhost", "metadata.google.internal", "127.1", "2130706433"):
        net.name(host, [PUBLIC])  # even if the look-up says that all is well
    output = await net.fetch(url)
    assert output.is_error
    assert net.connected == []
    assert "secret" not in str(output.content)


@pytest.mark.parametrize("location", [*PRIVATE_URLS, "//127.0.0.1/", "http:127.0.0.1", "file:///etc/passwd"])
async def test_a_redirect_to_a_private_address_is_refused_and_not_followed(net: FakeNet, location: str) -> None:
    net.name("example.com", [PUBLIC])
    net.answers = [redirect(location)]
    output = await net.fetch("http://example.com/")
    if location == "http:127.0.0.1":  # a path, as the standard library joins it; never a host
        assert {address for address, _ in net.connected} == {PUBLIC}
        return
    assert output.is_error
    assert net.connected == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["fe80::1%eth0"],
        ["169.254.169.254"],
        [PUBLIC, "10.0.0.1"],  # one good address does not excuse another
        ["10.0.0.1", PUBLIC],
        [PUBLIC] * 30 + ["127.0.0.1"],
        ["64:ff9b::a00:1"],
        ["2002:7f00:1::"],
        ["nonsense"],
        [],
    ],
)
async def test_a_name_that_leads_to_a_private_address_is_refused(net: FakeNet, found: list[str]) -> None:
    net.name("innocent.example.com", found)
    output = await net.fetch("https://innocent.example.com/")
    assert output.is_error
    assert net.connected == []


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(net: FakeNet) -> None:
    net.name("rebind.example.com", [PUBLIC], ["127.0.0.1"])
    output = await net.fetch("http://rebind.example.com/a?b=c")
    assert not output.is_error
    assert net.looked_up == ["rebind.example.com"]
    assert net.connected == [(PUBLIC, 80)]
    assert b"GET /a?b=c HTTP/1.1\r\nHost: rebind.example.com\r\n" in net.streams[0].heard


async def test_a_name_that_changes_before_a_redirect_to_itself_is_refused(net: FakeNet) -> None:
    net.name("rebind.example.com", [PUBLIC], ["127.0.0.1"])
    net.answers = [redirect("/again")]
    output = await net.fetch("http://rebind.example.com/")
    assert output.is_error
    assert "127.0.0.1" in str(output.content)
    assert net.connected == [(PUBLIC, 80)]


async def test_tls_is_for_the_name_while_the_connection_is_to_the_address(net: FakeNet) -> None:
    net.name("xn--bcher-kva.example", [PUBLIC])
    await net.fetch("https://Bücher.example./")
    assert net.connected == [(PUBLIC, 443)]
    assert net.streams[0].tls_name == "xn--bcher-kva.example"
    assert b"\r\nHost: xn--bcher-kva.example\r\n" in net.streams[0].heard


async def test_nothing_but_the_request_is_sent(net: FakeNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:3128")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:3128")
    net.name("a.example.com", [PUBLIC])
    net.name("b.example.com", [PUBLIC])
    net.answers = [answer(b"", "Location: http://b.example.com/", "Set-Cookie: a=b", status="301 Moved")]
    await net.fetch("http://a.example.com/")
    assert net.connected == [(PUBLIC, 80), (PUBLIC, 80)]
    sent = b"".join(stream.heard for stream in net.streams).lower()
    assert not any(name in sent for name in (b"cookie:", b"authorization:", b"referer:", b"origin:"))


async def test_a_redirect_from_https_to_http_is_refused(net: FakeNet) -> None:
    net.name("example.com", [PUBLIC])
    net.answers = [redirect("http://example.com/plain")]
    output = await net.fetch("https://example.com/")
    assert "redirects from https to plain http" in str(output.content)
    assert net.connected == [(PUBLIC, 443)]


async def test_what_the_owner_names_may_be_reached_and_nothing_beside_it(net: FakeNet) -> None:
    net.name("wiki.lan", ["10.0.0.5"])
    allowed = {"allow_private": ("wiki.lan", "127.0.0.1:8080", "[::1]:9000", "fd00::5")}
    for url in ("http://wiki.lan/", "http://WIKI.lan.:81/", "http://127.0.0.1:8080/", "http://[::1]:9000/"):
        assert not (await net.fetch(url, **allowed)).is_error, url
    assert not (await net.fetch("http://[fd00:0::5]:1234/", **allowed)).is_error
    reached = len(net.connected)
    for url in (
        "http://10.0.0.5/",
        "http://127.0.0.1/",
        "http://127.0.0.1:8081/",
        "http://[::1]/",
        "http://x.wiki.lan/",
    ):
        assert (await net.fetch(url, **allowed)).is_error, url
    assert len(net.connected) == reached


@pytest.mark.parametrize("entry", ["", "http://wiki.lan", "wiki.lan:port", "10.0.0.0/8", "*.lan", "a b"])
def test_an_exemption_that_names_no_host_is_a_config_error(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowPrivate"):
        AddressGuard((entry,))


async def test_another_address_of_the_host_is_tried_when_the_first_is_dead(net: FakeNet) -> None:
    net.name("example.com", ["2606:2800:21f:cb07::1", PUBLIC])

    async def connect(address: str, port: int, seconds: float) -> Any:
        if ":" in address:
            net.connected.append((address, port))
            raise OSError("network is unreachable")
        return await FakeNet.connect(net, address, port, seconds)

    net.connect = connect  # type: ignore[method-assign]
    assert not (await net.fetch("http://example.com/")).is_error
    assert [address for address, _ in net.connected] == ["2606:2800:21f:cb07::1", PUBLIC]


PRIVATE_4 = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4",
]  # fmt: skip
PRIVATE_6 = ["::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "2001:db8::/32", "2001::/32", "2002::/16"]


@st.composite
def inside(draw: st.DrawFn, networks: list[str]) -> int:
    network = ipaddress.ip_network(draw(st.sampled_from(networks)))
    return int(network.network_address) + draw(st.integers(0, network.num_addresses - 1))


@st.composite
def spelled_4(draw: st.DrawFn) -> str:
    """An address of a private range, in any spelling that some parser takes for it."""
    value = draw(inside(PRIVATE_4))
    count = draw(st.integers(1, 4))
    parts = [(value >> (8 * (3 - at))) & 0xFF for at in range(count - 1)]
    parts.append(value & ((1 << (8 * (5 - count))) - 1))
    forms = [f"{{:{kind}}}" for kind in ("d", "#x", "#X", "03d", "0>12d", "08o")] + ["0{:o}"]
    host = ".".join(draw(st.sampled_from(forms)).format(part) for part in parts)
    if draw(st.booleans()):
        host = "".join(
            draw(st.sampled_from([each, chr(ord(each) + 0xFEE0)])) if each.isdigit() else each for each in host
        )
    return host + draw(st.sampled_from(["", ".", ":80", ".:8080"]))


@st.composite
def spelled_6(draw: st.DrawFn) -> str:
    four = ipaddress.IPv4Address(draw(inside(PRIVATE_4)))
    six = ipaddress.IPv6Address(draw(inside(PRIVATE_6)))
    embedded = [
        f"::ffff:{four}",
        f"::{four}",
        f"64:ff9b::{four}",
        f"2002:{int(four) >> 16:x}:{int(four) & 0xFFFF:x}::1",
    ]
    host = draw(st.sampled_from([str(six), six.exploded, str(six).upper(), f"{six}%25eth0", *embedded]))
    return f"[{host}]" + draw(st.sampled_from(["", ":80", ":8080"]))


@settings(max_examples=100, deadline=None)
@given(st.one_of(spelled_4(), spelled_6()), st.sampled_from(["http", "HTTP"]), st.booleans())
def test_no_spelling_of_a_private_address_is_ever_connected_to(host: str, scheme: str, by_redirect: bool) -> None:
    """The resolver takes every name for a public one, so only the spelling itself can be what saves us."""
    net = FakeNet()

    async def everything_is_public(name: str, port: int) -> list[str]:
        return [PUBLIC]

    net.resolve = everything_is_public  # type: ignore[assignment]
    url = f"{scheme}://{host}/"
    if by_redirect:
        net.answers = [redirect(url)]
        url = "http://example.com/"
    output = asyncio.run(net.fetch(url))
    assert output.is_error, net.connected
    assert net.connected == ([(PUBLIC, 80)] if by_redirect else [])


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(inside(PRIVATE_4).map(ipaddress.IPv4Address), inside(PRIVATE_6).map(ipaddress.IPv6Address)),
        min_size=1,
    ),
    st.data(),
)
def test_no_answer_with_a_private_address_in_it_is_ever_connected_to(private: list[Any], data: st.DataObject) -> None:
    net = FakeNet()
    net.name("example.com", data.draw(st.permutations([*map(str, private[:8]), PUBLIC, "2606:4700::1111"])))
    assert asyncio.run(net.fetch("http://example.com/")).is_error
    assert net.connected == []


@given(st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address))
def test_what_the_standard_library_calls_private_is_never_public(address: ipaddress.IPv4Address) -> None:
    assert address.is_global or why_not_public(address)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_is_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"http://example.com/{text}"):
        try:
            target = parse_address(url)
        except AddressRefused:
            continue
        assert target.host.isascii()
        assert parse_address(target.url) == target


def test_public_addresses_are_public() -> None:
    for each in (PUBLIC, "8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450:4001::8a", "64:ff9b::8.8.8.8"):
        assert not why_not_public(ipaddress.ip_address(each)), each
    assert FetchSettings().allow_private == ()
