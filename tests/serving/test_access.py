"""Who may ask a server: names in Host and Origin, tokens, and addresses; on each server that listens."""

import asyncio
import contextlib
import os
import subprocess
import sys

import pytest

from gem_core.errors import ConfigError
from gem_envs.serving import Access
from gem_envs.serving._access import RequestRefused
from tests.serving import raw

FOREIGN = [
    "evil.example", "evil.example:{port}", "EVIL.example:{port}", "evil.example.:{port}", "evil.example:80",
    "localhost.evil.example:{port}", "127.0.0.1.evil.example:{port}", "127.0.0.1.nip.io", "127.1",
    "[2001:db8::1]:{port}", "[::ffff:1.2.3.4]:{port}", "0.0.0.0:{port}", "[::]:{port}", "192.168.0.1:{port}",
    "169.254.169.254", "2130706433", "0x7f.0.0.1", "localhost.localdomain", "xn--localhost-abc",
    "localhost-evil.example",
]  # fmt: skip
"""Hosts that a request can have after DNS rebinding, or in a proxy's name."""
MALFORMED = [
    "", "localhost:99999", "localhost:8000:1", "localhost:port", "[::1", "::1", "evil@localhost", "*",
    "localhost/evil", "localhost evil.example", "localhost,evil.example", "localhost:-1", "[localhost]",
    "lo\xe7alhost", "localhost:\uff11".encode().decode("latin-1"), "http://localhost",
]  # fmt: skip
LOOPBACK = ["localhost", "LocalHost:{port}", "127.0.0.1:{port}", "127.9.8.7", "[::1]:{port}", "localhost:9"]
PAGES = [
    "http://evil.example", "http://evil.example:{port}", "https://127.0.0.1.evil.example", "null", "file://",
    "http://localhost.evil.example:{port}", "chrome-extension://abcdef", "http://0.0.0.0:{port}",
    "http://192.168.0.1", "ftp://localhost",
]  # fmt: skip
"""Origins of pages that must not reach a server on loopback."""
BROKEN_ORIGINS = [
    "http://[",
    "http://",
    "http://localhost:port",
    "http://a b",
    "https://localhost/page",
    "http://?",
]


@contextlib.contextmanager
def openenv(**options):
    from tests.bridges.openenv.serving import GUESS, serving

    with serving(GUESS, **options) as running:
        yield running.server.port, "/metadata"


@contextlib.contextmanager
def search(**options):
    from tests.tools.search.test_server import Echo, SearchServer

    with SearchServer(Echo(), port=0, **options) as server:
        yield server.port, "/health"


@contextlib.contextmanager
def mcp(token=None):
    from tests.tools.mcp.servers import ROOT, free_port, stop, wait_for

    port = free_port()
    command = [sys.executable, "-m", "gem_envs.tools.mcp.example", "--port", str(port)]
    environment = {**os.environ, **({"GEM_CORE_MCP_TOKEN": token} if token else {})}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        yield port, "/mcp"
    finally:
        stop(process)


SERVERS = {"openenv": openenv, "search": search, "mcp": mcp}


@pytest.fixture(scope="module", params=SERVERS)
def server(request):
    """Port and a path of a server on loopback without a token."""
    pytest.importorskip("mcp" if request.param == "mcp" else "aiohttp", reason="needs an extra")
    with SERVERS[request.param]() as served:
        yield served


def ask(port, data):
    return raw.status(asyncio.run(raw.asked(port, data)))


def ask_all(port, requests):
    """Return the statuses of requests on as many connections."""

    async def main():
        return await asyncio.gather(*(raw.asked(port, data) for data in requests))

    return [raw.status(answer) for answer in asyncio.run(main())]


def named(port, path, hosts, **headers):
    """Return requests under several names."""
    return [
        raw.request(f"GET {path} HTTP/1.1", Host=host.format(port=port), Connection="close", **headers)
        for host in hosts
    ]


def test_only_names_of_loopback_are_hosts(server):
    port, path = server
    assert ask_all(port, named(port, path, FOREIGN)) == [421] * len(FOREIGN)
    assert ask_all(port, named(port, path, MALFORMED)) == [400] * len(MALFORMED)
    assert not set(ask_all(port, named(port, path, LOOPBACK))) & {0, 400, 401, 403, 421}


def test_a_page_that_rebinds_its_name_is_refused(server):
    """Host and Origin agree, because the browser believes that the page's own server answers."""
    port, path = server
    for host in ("evil.example", "EVIL.EXAMPLE", "evil.example.", "[2001:db8::1]", "localhost.evil.example"):
        name = f"{host}:{port}"
        assert ask(port, named(port, path, [name], Origin=f"http://{name}")[0]) == 421
    more = {"X-Forwarded-Host": "localhost", "Forwarded": "host=localhost", "X-Host": "localhost"}
    assert ask(port, named(port, path, ["evil.example"], **more)[0]) == 421


def test_requests_of_other_pages_are_refused(server):
    port, path = server
    local = f"127.0.0.1:{port}"

    def page_headers(pages):
        return [named(port, path, [local], Origin=page.format(port=port))[0] for page in pages]

    assert ask_all(port, page_headers(PAGES)) == [403] * len(PAGES)
    assert ask_all(port, page_headers(BROKEN_ORIGINS)) == [400] * len(BROKEN_ORIGINS)
    own = ["http://127.0.0.1:{port}", "http://localhost:3000", "HTTP://LOCALHOST", "https://[::1]:5"]
    assert not set(ask_all(port, page_headers(own))) & {0, 400, 401, 403, 421}


def test_the_target_is_a_path_and_host_stands_once(server):
    port, path = server
    host = f"Host: 127.0.0.1:{port}\r\n"
    requests = [
        f"GET http://evil.example{path} HTTP/1.1\r\n{host}\r\n",
        f"GET http://127.0.0.1:{port}{path} HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        f"GET //evil.example{path} HTTP/1.1\r\n{host}\r\n",
        f"GET //[ HTTP/1.1\r\n{host}\r\n",
        f"OPTIONS * HTTP/1.1\r\n{host}\r\n",
        f"GET {path} HTTP/1.1\r\n{host}Host: evil.example\r\n\r\n",
        f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n{host}\r\n",
        f"GET {path} HTTP/1.1\r\n\r\n",
        f"GET {path} HTTP/1.0\r\n\r\n",
        f"GET {path} HTTP/1.0\r\nX-Forwarded-Host: localhost\r\n\r\n",
    ]
    assert ask_all(port, [request.encode() for request in requests]) == [400] * len(requests)


@pytest.mark.parametrize("kind", ["openenv", "search"])
def test_a_websocket_or_a_post_needs_the_same_names(kind):
    pytest.importorskip("aiohttp", reason="needs the extra 'serve'")
    with SERVERS[kind]() as (port, _):
        evil = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
        assert ask(port, raw.upgrade(port, **evil)) == 421
        assert ask(port, raw.upgrade(port, Origin="http://evil.example")) == 403
        body = b'{"queries": ["a"]}'
        for path in ("/retrieve", "/mcp"):
            post = raw.request(f"POST {path} HTTP/1.1", body, Content_Length=len(body), **evil)
            assert ask(port, post) == 421


@pytest.mark.parametrize("kind", SERVERS)
def test_a_token_is_checked_before_the_body(kind):
    """The answer arrives although the body never does."""
    pytest.importorskip("mcp" if kind == "mcp" else "aiohttp", reason="needs an extra")
    with SERVERS[kind](token="secret") as (port, _):
        path = "/retrieve" if kind == "search" else "/mcp"

        def with_(**headers):
            fields = {"Host": "localhost", "Content_Length": 8_000_000, **headers}
            return raw.request(f"POST {path} HTTP/1.1", b"x" * 1000, **fields)

        bad = [
            "",
            "Bearer",
            "Bearer secre",
            "Bearer secret2",
            "bearer secret",
            "Basic secret",
            "Bearer s\xe9",
        ]
        requests = [with_(), *(with_(Authorization=value) for value in bad)]
        requests.append(with_(**{"Authorization": "Bearer secret", "authorization": "Bearer other"}))
        assert ask_all(port, requests) == [401] * len(requests)
        admitted = with_(Authorization="Bearer secret")
        assert ask(port, admitted) == 413  # the size that it declares is too large for every route


def test_addresses_that_others_reach_need_a_token():
    addresses = ["0.0.0.0", "", "::", "192.168.1.1", "10.0.0.1", "example.com", "2001:db8::1", "169.254.0.1"]
    addresses += ["127.0.0.1.example", "localhost.example"]
    for address in addresses:
        with pytest.raises(ConfigError, match="set a token"):
            Access.for_address(address)
        Access.for_address(address, "secret")
        Access.for_address(address, public=True)
    for address in ("127.0.0.1", "127.0.0.2", "::1", "localhost", "LOCALHOST"):
        assert Access.for_address(address).local


def test_other_addresses_accept_their_names():
    def refused(access, host, origin=(), token="Bearer t"):
        try:
            access.check("/", [host], list(origin), [token])
        except RequestRefused as refusal:
            return refusal.status
        return None

    anywhere = Access.for_address("0.0.0.0", "t")
    assert refused(anywhere, "name.example:80") is None
    assert refused(anywhere, "name.example", ["http://name.example:80"]) is None
    assert refused(anywhere, "name.example:8000", ["http://name.example"]) == 403
    assert refused(anywhere, "name.example", ["http://localhost"]) == 403
    assert refused(anywhere, "name.example", token="Bearer x") == 401
    named = Access.for_address("0.0.0.0", "t", ["Name.example", "10.0.0.1"])
    assert refused(named, "name.EXAMPLE:8000", ["https://name.example"]) is None
    assert refused(named, "10.0.0.1") is None
    assert refused(named, "other.example") == 421
    proxied = Access.for_address("127.0.0.1", "t", ["name.example"])
    assert refused(proxied, "name.example", ["https://name.example"]) is None
    assert refused(proxied, "127.0.0.1:1") is None
    assert refused(proxied, "other.example") == 421


@pytest.mark.parametrize("name", ["http://name", "name:80", "na me", "", "name/path", "*"])
def test_a_name_that_is_none_is_reported(name):
    with pytest.raises(ConfigError, match="is not a host name"):
        Access.for_address("127.0.0.1", hosts=[name])


@pytest.mark.parametrize("token", ["", "two words", "t\xe9", "line\n"])
def test_a_token_that_no_header_holds_is_reported(token):
    with pytest.raises(ConfigError, match="printable ASCII"):
        Access.for_address("127.0.0.1", token)
