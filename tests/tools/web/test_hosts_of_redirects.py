"""A run that is held to certain hosts: web_fetch asks no other, wherever a server sends it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from small_web import RUN, Server, answer, redirect

from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import Restriction, ToolOutput
from palinurus.tools.built_in import web_tools
from palinurus.tools.registry import ToolRegistry
from palinurus.tools.settings import FetchSettings, SearchSettings

TEXT = "Content-Type: text/plain"


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def fetched(server: Server, path: str, *hosts: tuple[str, ...], name: str = "127.0.0.1") -> ToolOutput:
    """web_fetch in a run with a skill in use for each of the lists of hosts. Both names of loopback are allowed."""
    here = tuple(f"{each}:{server.port}" for each in ("127.0.0.1", "localhost"))
    tools = web_tools(FetchSettings(allow_private=here), SearchSettings(), resolver=loopback)
    held = tuple(Restriction(f"skill:s{at}", "it declares so", hosts=each) for at, each in enumerate(hosts))
    run = msgspec.structs.replace(RUN, restrictions=held)
    call = ToolCall("c1", "web_fetch", {"url": f"http://{name}:{server.port}{path}"})
    return await asyncio.wait_for(ToolRegistry(tools).run(run, call), 60)


@pytest.fixture
def winding(server: Server) -> Server:
    """/a leads to /b on the same host, and /b to /there on another."""
    server.pages["/a"] = redirect("/b")
    server.pages["/b"] = redirect(f"http://localhost:{server.port}/there", status="308 P")
    server.pages["/there"] = answer("High water at noon.", TEXT)
    return server


async def test_a_redirect_to_a_host_that_the_skill_does_not_name_is_not_followed(winding: Server) -> None:
    for hosts in (("127.0.0.1",), (f"127.0.0.1:{winding.port}", "*.example.org")):
        winding.requests.clear()
        output = await fetched(winding, "/a", hosts)
        text = str(output.content)
        assert (output.is_error, output.origin) == (True, Origin.OUTSIDE)
        assert "127.0.0.1 redirects to localhost, which may not be reached here: skill:s0: it declares so" in text
        assert f"of hosts only {', '.join(hosts)}" in text
        assert [request.split()[1] for request in winding.requests] == [b"/a", b"/b"]  # and nothing was sent there


async def test_a_redirect_to_a_host_that_it_names_is_followed(winding: Server) -> None:
    both = ("127.0.0.1", f"localhost:{winding.port}")
    for hosts in ((both,), (both, both), ()):
        output = await fetched(winding, "/a", *hosts)
        assert not output.is_error
        assert "High water at noon." in str(output.content)


async def test_of_two_skills_in_use_the_narrower_one_counts_on_the_way_too(winding: Server) -> None:
    output = await fetched(winding, "/a", ("127.0.0.1", "localhost"), ("127.0.0.1",))
    assert "redirects to localhost, which may not be reached here: skill:s1" in str(output.content)


async def test_another_port_is_another_host_where_the_skill_names_one(server: Server) -> None:
    server.pages["/a"] = redirect(f"http://127.0.0.1:{server.port + 1}/")
    output = await fetched(server, "/a", (f"127.0.0.1:{server.port}",))
    assert "redirects to 127.0.0.1, which may not be reached here: skill:s0" in str(output.content)


async def test_the_first_address_is_looked_at_as_it_is_sent(winding: Server) -> None:
    """The gate has seen it as it was written; of how to read an address there must be one opinion."""
    output = await fetched(winding, "/there", ("127.0.0.1",), name="localhost")
    assert "localhost may not be reached here: skill:s0" in str(output.content)
    assert winding.requests == []
