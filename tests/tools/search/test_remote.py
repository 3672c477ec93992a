from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from gem_core.errors import ConfigError, ServiceError, UnknownName
from gem_envs.tools._http import HttpClient
from gem_envs.tools.search import open_searcher
from gem_envs.tools.search._remote import GoogleSearch, RetrievalServer, SerpApi
from tests.tools.search.stub import StubSearch

FOUND = {"result": [[{"document": {"id": "4", "contents": '"A title"\nA text'}, "score": 2.5}]]}
QUICK = {"backoff": 0.001, "timeout": 5.0}


def test_the_retrieval_protocol_as_search_r1_speaks_it():
    with StubSearch((200, {}, FOUND)) as server, RetrievalServer(server.url, **QUICK) as searcher:
        (hit,) = searcher.search("what", k=2)
    assert hit == ({"id": "4", "title": "A title", "text": "A text"}, 2.5)
    (asked,) = server.asked
    assert asked["path"] == "/retrieve"
    assert asked["body"] == {"queries": ["what"], "topk": 2, "return_scores": True}


def test_a_path_of_its_own_is_kept():
    with (
        StubSearch((200, {}, FOUND)) as server,
        RetrievalServer(server.url + "/v2/find/", **QUICK) as searcher,
    ):
        searcher.search("what")
    assert server.asked[0]["path"] == "/v2/find"


@pytest.mark.parametrize(
    "result",
    [
        [[{"id": "4", "title": "A title", "text": "A text"}]],  # without scores
        [[{"document": {"docid": 4, "title": "A title", "content": "A text"}}]],
    ],
)
def test_other_servers_are_understood(result):
    with (
        StubSearch((200, {}, {"result": result})) as server,
        RetrievalServer(server.url, **QUICK) as searcher,
    ):
        (hit,) = searcher.search("what")
    assert hit.document == {"id": "4", "title": "A title", "text": "A text"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"result": []}, "no 'result' for each query"),
        (["x"], "no 'result' for each query"),
        ({"result": [[{"document": {"id": 1}}]]}, "a document without text"),
        (b"<html>", "did not answer with JSON"),
    ],
)
def test_an_invalid_answer_is_an_error(answer, said):
    with (
        StubSearch((200, {}, answer)) as server,
        RetrievalServer(server.url, **QUICK) as searcher,
        pytest.raises(ServiceError, match=said),
    ):
        searcher.search("what")
    assert len(server.asked) == 1


def test_a_temporary_failure_is_retried():
    answers = [(503, {}, b""), None, (429, {"Retry-After": "0"}, b""), (200, {}, FOUND)]
    with StubSearch(*answers) as server, RetrievalServer(server.url, **QUICK) as searcher:
        assert len(searcher.search("what")) == 1
    assert len(server.asked) == 4


def test_a_persistent_failure_is_an_error_after_all_attempts():
    with (
        StubSearch((500, {}, {"error": "index is gone"})) as server,
        RetrievalServer(server.url, retries=2, **QUICK) as searcher,
        pytest.raises(ServiceError, match=r"status 500: .*index is gone.*, after 3 attempts"),
    ):
        searcher.search("what")
    assert len(server.asked) == 3


def test_a_mistake_is_not_tried_again():
    with (
        StubSearch((400, {}, {"error": "no"})) as server,
        RetrievalServer(server.url, **QUICK) as searcher,
        pytest.raises(ServiceError, match="status 400"),
    ):
        searcher.search("what")
    assert len(server.asked) == 1


def test_a_missing_server_is_an_error():
    with socket.socket() as taken:  # bound but not listening: no answer
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServiceError, match=r"does not answer \(ConnectionRefusedError"):
            RetrievalServer(url, retries=1, backoff=0.001).search("what")


def test_a_slow_server_is_abandoned():
    with (
        StubSearch(30.0, (200, {}, FOUND)) as server,
        RetrievalServer(server.url, timeout=0.1, retries=0) as searcher,
        pytest.raises(ServiceError, match="does not answer"),
    ):
        searcher.search("what")


def test_a_server_that_sends_too_slowly_is_abandoned():
    """Each part arrives in time, but the whole answer does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def drip():
            connection, _ = listener.accept()
            with connection:
                connection.recv(2**16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        client = HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.4, retries=0)
        with pytest.raises(ServiceError, match=r"no complete answer in time|timed out"):
            client.get("/", {})
        stop.set()
        thread.join()


def test_connections_stay_and_are_bounded():
    with (
        StubSearch((200, {}, FOUND)) as server,
        RetrievalServer(server.url, concurrency=3, **QUICK) as searcher,
    ):

        async def many():
            return await asyncio.gather(*(searcher.asearch(f"q{n}") for n in range(40)))

        assert len(asyncio.run(many())) == 40
        assert len(server.asked) == 40
        assert server.connections <= 3
        assert server.most_at_once <= 3


def test_a_connection_that_the_server_closed_meanwhile_costs_nothing():
    closing = (200, {"Connection": "close"}, FOUND)
    with StubSearch((200, {}, FOUND), closing) as server:
        searcher = RetrievalServer(server.url, retries=0, timeout=5.0)
        for n in range(3):
            searcher.search(f"q{n}")
        searcher.close()
    assert len(server.asked) == 3


def test_the_same_question_is_asked_once():
    with (
        StubSearch(0.2, (200, {}, FOUND)) as server,
        RetrievalServer(server.url, cache=2, concurrency=8, **QUICK) as searcher,
    ):

        async def many():
            return await asyncio.gather(*(searcher.asearch("same") for _ in range(8)))

        results = asyncio.run(many())
        assert len(server.asked) == 1
        results[0].clear()
        assert len(searcher.search("same")) == 1  # each caller gets its own list
        searcher.search("same", k=1)
        searcher.search("other")  # the third entry evicts the first
        searcher.search("same")
        assert len(server.asked) == 4


def test_a_failure_is_not_kept():
    with (
        StubSearch((400, {}, b""), (200, {}, FOUND)) as server,
        RetrievalServer(server.url, cache=9) as searcher,
    ):
        with pytest.raises(ServiceError):
            searcher.search("what")
        assert len(searcher.search("what")) == 1


def test_an_old_result_is_requested_again():
    with (
        StubSearch((200, {}, FOUND)) as server,
        RetrievalServer(server.url, cache=9, cache_seconds=0.0, **QUICK) as searcher,
    ):
        searcher.search("what")
        searcher.search("what")
    assert len(server.asked) == 2


# -- web searches -----------------------------------------------------------------------------

RESULTS = [{"title": f"T{n}", "link": f"http://x/{n}", "snippet": f"S{n}"} for n in range(5)]


def test_serpapi():
    with (
        StubSearch((200, {}, {"organic_results": RESULTS})) as server,
        SerpApi("secret", url=server.url) as search,
    ):
        hits = search.search("cats & dogs", k=2)
    assert [hit.document for hit in hits] == [
        {"id": f"http://x/{n}", "title": f"T{n}", "text": f"S{n}"} for n in (0, 1)
    ]
    assert hits[0].score > hits[1].score
    (asked,) = server.asked
    assert asked["path"] == "/search"
    assert asked["query"] == {
        "engine": "google", "q": "cats & dogs", "num": "2", "output": "json", "api_key": "secret",
    }  # fmt: skip


def test_google():
    with (
        StubSearch((200, {}, {"items": RESULTS}), (200, {}, {})) as server,
        GoogleSearch("secret", "engine", url=server.url) as search,
    ):
        assert [hit.document["title"] for hit in search.search("cats", k=20)] == [
            "T0",
            "T1",
            "T2",
            "T3",
            "T4",
        ]
        assert search.search("nothing of the kind", k=3) == []
        search.search("cats", k=20)
    assert len(server.asked) == 2  # web searches are cached
    assert server.asked[0]["path"] == "/customsearch/v1"
    assert server.asked[0]["query"] == {"key": "secret", "cx": "engine", "q": "cats", "num": "10"}


def test_serpapi_says_that_nothing_was_found_in_its_own_way():
    nothing = {"error": "Google hasn't returned any results for this query."}
    spent = {"error": "Your account has run out of searches."}
    with (
        StubSearch((200, {}, nothing), (200, {}, spent)) as server,
        SerpApi("secret", url=server.url) as search,
    ):
        assert search.search("a") == []
        with pytest.raises(ServiceError, match="run out of searches"):
            search.search("b")


@pytest.mark.parametrize("make", [lambda url: SerpApi("s3cret", url=url, retries=0),
                                  lambda url: GoogleSearch("s3cret", "e", url=url, retries=0)])  # fmt: skip
def test_no_message_holds_the_key(make):
    with StubSearch((403, {}, {"error": {"message": "forbidden"}})) as server:
        with make(server.url) as search, pytest.raises(ServiceError, match="status 403") as caught:
            search.search("cats")
        assert "s3cret" in str(server.asked[0]["query"])
    with make(server.url) as search, pytest.raises(ServiceError) as gone:
        search.search("cats")
    assert "s3cret" not in f"{caught.value!r} {gone.value!r}"


def test_a_key_comes_from_the_environment(monkeypatch):
    for name in ("SERPAPI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CSE_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="set the environment variable SERPAPI_API_KEY"):
        SerpApi()
    monkeypatch.setenv("GOOGLE_API_KEY", "x")
    with pytest.raises(ConfigError, match="set the environment variable GOOGLE_CSE_ID"):
        GoogleSearch()
    monkeypatch.setenv("SERPAPI_API_KEY", "x")
    SerpApi()


def test_options_are_checked():
    with pytest.raises(UnknownName, match="Did you mean google"):
        open_searcher("gogle")
    with pytest.raises(TypeError, match="accepted keyword arguments"):
        open_searcher("server", uri="http://localhost")
    for url in ("localhost:8000", "ftp://x", "http://"):
        with pytest.raises(ConfigError, match="expected http://host:port"):
            open_searcher("server", url=url)
    for options in ({"concurrency": 0}, {"cache": -1}, {"timeout": 0}, {"retries": -1}, {"backoff": True}):
        with pytest.raises(ConfigError, match="expected a"):
            open_searcher("server", url="http://localhost", **options)


def test_a_closed_searcher_keeps_no_connection():
    with StubSearch((200, {}, FOUND)) as server:
        searcher = RetrievalServer(server.url, **QUICK)
        searcher.search("what")
        (kept,) = searcher.client._idle
        assert kept.sock is not None
        searcher.close()
        assert kept.sock is None
