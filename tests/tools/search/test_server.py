from __future__ import annotations

import asyncio
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

from gem_core.errors import ConfigError, ServiceError, WrongServer
from gem_envs.tools.search import Hit, Searcher, SearchServer
from gem_envs.tools.search import _server as search_server
from gem_envs.tools.search._remote import RetrievalServer
from tests.serving import raw


class Echo(Searcher):
    """Finds documents that repeat the query, or fails on request."""

    def find(self, query: str, k: int) -> list[Hit]:
        if query == "fail":
            raise ServiceError("the search behind it is gone")
        return [Hit({"id": str(n), "title": f"T{n}", "text": query}, 1.0 / (n + 1)) for n in range(k)]


@pytest.fixture
def server():
    with SearchServer(Echo(), port=0) as served:
        yield served


def ask(server, body, path="/retrieve", method="POST", headers=None):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, headers or {})
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def test_documents_with_scores(server):
    status, answer = ask(server, {"queries": ["a", "b"], "topk": 2, "return_scores": True})
    assert status == 200
    assert [[hit["document"]["contents"] for hit in hits] for hits in answer["result"]] == [
        ['"T0"\na', '"T1"\na'],
        ['"T0"\nb', '"T1"\nb'],
    ]
    assert [hit["score"] for hit in answer["result"][0]] == [1.0, 0.5]


def test_documents_alone(server):
    status, answer = ask(server, {"queries": ["a"]})
    assert status == 200
    assert [document["id"] for document in answer["result"][0]] == ["0", "1", "2"]


def test_our_client_speaks_to_our_server(server):
    with RetrievalServer(server.url) as searcher:
        assert searcher.search("Grüße 寿司", k=2) == Echo().find("Grüße 寿司", 2)
        assert [len(hits) for hits in searcher.find_all(["a", "b", "c"], 4)] == [4, 4, 4]
    with (
        RetrievalServer(server.url, retries=0) as searcher,
        pytest.raises(ServiceError, match="the search behind it is gone"),
    ):
        searcher.search("fail")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([], "expected an object"),
        ({"queries": [1]}, "list of strings"),
        ({"query": "a"}, "list of strings"),
        ({"queries": ["a"] * 2000}, "2000 queries"),
        ({"queries": ["a"], "topk": 0}, "from 1 to"),
        ({"queries": ["a"], "topk": "3"}, "from 1 to"),
        ({"queries": ["a"], "topk": 10**9}, "from 1 to"),
        ({"queries": ["a"], "topk": 1000}, "from 1 to"),
        ({"queries": ["a"], "topk": True}, "from 1 to"),
        ({"queries": ["a"], "topk": 2.5}, "from 1 to"),
        ({"queries": [["a"]]}, "list of strings"),
    ],
)
def test_a_mistake_gets_a_reply_that_names_it(server, body, said):
    status, answer = ask(server, body)
    assert status == 400
    assert said in answer["error"]


def test_a_body_that_is_too_long_is_rejected_unread(server):
    status, answer = ask(server, b"", headers={"Content-Length": str(10**10)})
    assert (status, "at most" in answer["error"]) == (413, True)


def test_other_paths(server):
    assert ask(server, b"", "/health", "GET") == (200, {"status": "ok"})
    assert ask(server, b"", "/", "GET")[0] == 404
    assert ask(server, {"queries": ["a"]}, "/search")[0] == 404


def test_a_connection_serves_many_requests(server):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    for path in ("/retrieve", "/nowhere", "/retrieve"):
        connection.request("POST", path, b'{"queries": ["a"]}')
        connection.getresponse().read()
        assert connection.sock is not None
    connection.close()


def test_a_port_that_is_taken_is_an_error(server):
    with pytest.raises(OSError, match="in use"):
        SearchServer(Echo(), port=server.port)


LONG = "x" * 200_000


class Long(Echo):
    """Finds long documents."""

    def find(self, query: str, k: int) -> list[Hit]:
        return [Hit({"id": str(n), "title": "T", "text": LONG}, 1.0) for n in range(k)]


LARGE = {
    "queries": {"queries": ["a"] * 1024, "topk": 200},
    "strings": {"queries": "q" * 100_000, "topk": 99},
    "long queries": {"queries": ["q" * 4000] * 900, "topk": 3},
    "scores": {"queries": ["a"] * 1000, "topk": 200, "return_scores": True},
    "escapes": {"queries": ["\x01" * 10_000] * 60, "topk": 10},
    "one query": {"queries": "q" * 100_000, "topk": 200},
}


@pytest.mark.parametrize("name", LARGE)
def test_an_answer_that_is_too_long_is_refused(server, name):
    status, answer = ask(server, LARGE[name])
    assert status == 413
    assert "send fewer queries" in answer["error"]


def test_large_answers_take_bounded_memory():
    """Each of these requests of 22 KB asks for 40 GB."""
    before = raw.memory()
    with SearchServer(Long(), port=0) as server, ThreadPoolExecutor(8) as pool:
        request = {"queries": ["a"] * 1000, "topk": 200}
        assert {status for status, _ in pool.map(lambda _: ask(server, request), range(24))} == {413}
        assert raw.memory() - before < 300


def test_answers_that_nobody_reads_are_counted(monkeypatch):
    monkeypatch.setattr(search_server, "MOST_UNSENT", 20 << 20)
    body = json.dumps({"queries": ["a"] * 16, "topk": 1}).encode()

    async def main(port):
        post = raw.request("POST /retrieve HTTP/1.1", body, Host="localhost", Content_Length=len(body))
        opened = [await raw.opened(port, post) for _ in range(12)]
        for _, writer in opened:
            writer.transport.pause_reading()
        deadline = time.monotonic() + 20
        last = post.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        while raw.status(await raw.asked(port, last)) != 503:
            assert time.monotonic() < deadline
        for _, writer in opened:
            writer.transport.abort()

    with SearchServer(Long(), port=0) as server:
        asyncio.run(main(server.port))
        deadline = time.monotonic() + 20
        while server._unsent:  # the clients are gone
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_server_for_other_machines_needs_a_token():
    with pytest.raises(ConfigError, match="set a token"):
        SearchServer(Echo(), host="0.0.0.0", port=0)
    with SearchServer(Echo(), host="0.0.0.0", port=0, token="secret") as server:
        url = f"http://127.0.0.1:{server.port}"
        with RetrievalServer(url, token="secret") as searcher:
            assert len(searcher.search("a", k=2)) == 2
        with RetrievalServer(url, retries=0) as searcher, pytest.raises(WrongServer, match="401"):
            searcher.search("a")
