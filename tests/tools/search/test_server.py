from __future__ import annotations

import http.client
import json

import pytest

pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

from gem_core.errors import ServiceError
from gem_core.tools.search import Hit, Searcher
from gem_core.tools.search.remote import RetrievalServer
from gem_core.tools.search.server import SearchServer


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
