"""Which connections go through a proxy, and what errors say of it."""

from __future__ import annotations

import pytest

from gem_core.errors import ConfigError, ServiceError
from gem_envs._proxies import is_loopback, proxy_for, via
from gem_envs.tools._http import HttpClient
from tests.tools.search.stub import StubSearch

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, PROXY)
    assert proxy_for("http://server.example:8000/v1") == PROXY
    assert proxy_for("ws://server.example:8000/ws") == PROXY
    assert proxy_for("https://server.example/") == (PROXY if "all" in name.lower() else None)
    monkeypatch.setenv("NO_PROXY", "other.example, .example")
    assert proxy_for("http://server.example:8000/v1") is None


def test_each_scheme_has_its_own_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "secure.example:3128")
    monkeypatch.setenv("ALL_PROXY", "socks5://socks.example:1080")
    assert (
        proxy_for("https://server.example/v1")
        == proxy_for("wss://server.example")
        == ("http://secure.example:3128")
    )
    with pytest.raises(
        ConfigError, match=r"socks5://socks.example:1080 for server.example: expected one that"
    ):
        proxy_for("http://server.example/v1")
    assert proxy_for("http://127.0.0.1:8000/v1") is None
    monkeypatch.setenv("NO_PROXY", "*")
    assert proxy_for("http://server.example/v1") is None


LOOPBACK = ("localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "[::1]")
ELSEWHERE = ("10.0.0.1", "server.example", "localhost.example", "128.0.0.1", "[::2]", "0127.0.0.1.example")


def test_loopback_addresses_are_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES[:3]:
        monkeypatch.setenv(name, PROXY)
    for host in LOOPBACK:
        assert is_loopback(host)
        assert proxy_for(f"http://{host}:8000/v1") is None
    for host in ELSEWHERE:
        assert not is_loopback(host)
        assert proxy_for(f"http://{host}:8000/v1") == PROXY


def test_a_message_hides_the_password_of_the_proxy() -> None:
    assert via("http://me:secret@proxy.example:3128") == " through the proxy http://proxy.example:3128"
    assert via(None) == ""


def test_requests_go_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with StubSearch((200, {}, {"found": 1})) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("://", "://me:s%40me@"))
        client = HttpClient("http://server.example:8000/v1", retries=0)
        assert client.post("/retrieve", {"a": 1}) == {"found": 1}
        assert client.get("/search", {"q": "x"}) == {"found": 1}
        client.close()
    first, second = proxy.asked
    assert first["headers"]["Host"] == "server.example:8000"
    assert first["headers"]["Proxy-Authorization"] == "Basic bWU6c0BtZQ=="
    assert (first["body"], second["query"]) == ({"a": 1}, {"q": "x"})
    assert first["path"].endswith("/v1/retrieve")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_errors_name_the_proxy(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    with StubSearch((503, {}, b"no route")) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy.url)
        client = HttpClient(f"{scheme}://server.example", retries=0)
        with pytest.raises(ServiceError, match=rf"server.example/x .* through the proxy {proxy.url}"):
            client.get("/x", {})
        client.close()
    with pytest.raises(ServiceError, match=rf"does not answer through the proxy {proxy.url} \("):
        client.get("/x", {})


def test_a_server_on_this_machine_does_not_need_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES[:3]:
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nothing answers
    with StubSearch((200, {}, {"found": 1})) as server:
        client = HttpClient(server.url, retries=0)
        assert client.post("/x", {}) == {"found": 1}
        client.close()
