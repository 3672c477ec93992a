"""The page sources of the wiki game, against a local HTTP server with the same protocols."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler
from random import Random
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from gem_core.errors import ServiceError
from gem_envs._games.wiki_game import WikiGame
from gem_envs._games.wiki_servers import KiwixPages, MediaWikiPages
from tests.envs.games.players import say
from tests.support.servers import StubServer

PAGES = {
    "Cat": ("The cat is an animal.", ["Dog", "AC/DC", "Mouse (animal)"]),
    "Dog": ("The dog barks.", ["Cat", "Gone"]),
    "AC/DC": ("A band.", ["Dog"]),
    "Mouse (animal)": ("The mouse is small.", ["Cat"]),
}
LINKS_A_PART = 2


class Wiki(BaseHTTPRequestHandler):
    """Answers ``/w/api.php`` like MediaWiki, and the rest like kiwix-serve with the file ``tiny``."""

    draws = 0

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path == "/w/api.php":
            self.send(200, json.dumps(self.api(query)), "application/json")
        elif address.path == "/random" and query == {"content": "tiny"}:
            self.send_response(302)
            self.send_header("Location", f"/content/tiny/A/{quote(self.draw().replace(' ', '_'))}")
            self.end_headers()
        elif address.path.startswith("/content/tiny/A/"):
            title = unquote(address.path.removeprefix("/content/tiny/A/")).replace("_", " ")
            self.send(*((200, self.article(title)) if title in PAGES else (404, "no such page")))
        else:
            self.send(500 if address.path == "/broken" else 404, "<p>?</p>")

    def send(self, code, text, kind="text/html"):
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def draw(self):
        type(self).draws += 1
        return list(PAGES)[self.draws % len(PAGES)]

    def api(self, query):
        assert query["action"] == "query"
        assert query["formatversion"] == "2"
        if query.get("list") == "random":
            return {"query": {"random": [{"id": 1, "ns": 0, "title": self.draw()}]}}
        title = query["titles"][0].upper() + query["titles"][1:]
        if title not in PAGES:
            return {"query": {"pages": [{"title": title, "missing": True}]}}
        text, links = PAGES[title]
        start = int(query.get("plcontinue", 0))
        page = {
            "title": title,
            "links": [{"ns": 0, "title": link} for link in links[start : start + LINKS_A_PART]],
        }
        if not start:
            page["extract"] = text
        more = {"continue": {"plcontinue": str(start + LINKS_A_PART), "continue": "||"}}
        return {**(more if start + LINKS_A_PART < len(links) else {}), "query": {"pages": [page]}}

    def article(self, title):
        text, links = PAGES[title]
        up = "../" * title.count("/")
        anchors = "".join(
            f'<a href="{up}{quote(link.replace(" ", "_"))}#part">{link}</a>' for link in [*links, title]
        )
        return (
            f"<html><head><title>x</title><style>p {{color: red}}</style></head><body>Tiny"
            f"<h1>{title}</h1>From Tiny<div>Contents<script>var x;</script></div>"
            f"<p>{text.replace('is', '<b>is</b>')}</p><a href='{up}../-/style.css'>s</a>"
            f"<a href='https://example.org/A/Lion'>out</a><a href='#top'>top</a>{anchors}</body></html>"
        )


@pytest.fixture(scope="module")
def url():
    server = StubServer(("127.0.0.1", 0), Wiki)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(params=["mw", "kiwix"])
def served(request, url):
    """A backend and its arguments."""
    if request.param == "mw":
        return "mw", {"url": f"{url}/w/api.php", "query_delay_ms": 0}
    return "kiwix", {"url": url, "zimfile": "tiny"}


def pages_of(served):
    backend, kwargs = served
    return (MediaWikiPages if backend == "mw" else KiwixPages)(**kwargs)


@pytest.mark.parametrize("title", PAGES)
def test_a_page_has_its_text_and_all_its_links(served, title):
    page = pages_of(served).page(title)
    assert page is not None
    assert (page.title, page.text, list(page.links)) == (title, *PAGES[title])


def test_a_page_at_another_address_has_its_heading_as_title():
    html = Wiki.article(None, "Cat")
    page = KiwixPages("tiny", "http://localhost:1")._read(html, "http://localhost:1/viewer?page=1")
    assert (page.title, page.text) == ("Cat", PAGES["Cat"][0])


def test_a_missing_page(served):
    assert pages_of(served).page("Gone") is None


def test_random_pages(served):
    titles = {pages_of(served).random_page(Random(0)).title for _ in range(8)}
    assert titles == set(PAGES)


def test_a_game_on_a_server(served):
    backend, kwargs = served
    env = WikiGame(max_turns=12, backend=backend, trawler_kwargs=kwargs)
    assert env.blocking is True
    observation, info = env.reset(seed=0)
    start, target = env.current["title"], env.target["title"]
    assert start != target
    assert f"from the page {start} to the page {target}" in observation
    assert all(f"- {link}" in info["suffix"] for link in PAGES[start][1])
    assert env.oracle_action() is None
    state = env.get_state()
    for _ in range(12):
        links = [link for link in env.current["links"] if link != "Gone"]
        title = target if target in links else links[env.turn % len(links)]
        *_, terminated, truncated, info = env.step(say(title))
        if terminated or truncated:
            break
    assert info["invalid"] is None
    assert env.current["title"] == target or truncated
    env.set_state(state)
    assert (env.current["title"], env.target["title"]) == (start, target)


def test_a_dangling_link_is_the_servers_fault(served):
    backend, kwargs = served
    env = WikiGame(max_turns=5, backend=backend, trawler_kwargs=kwargs)
    env.reset()
    env.target = {"title": "Nobody", "text": "", "links": []}
    env._show(pages_of(served).page("Dog"))
    with pytest.raises(ServiceError, match="linked page 'Gone' does not exist"):
        env.step(say("Gone"))


def test_the_delay_is_kept(served, monkeypatch):
    waited = []
    monkeypatch.setattr("gem_envs._games.wiki_servers.time.sleep", waited.append)
    backend, kwargs = served
    pages_of((backend, {**kwargs, "query_delay_ms": 40})).page("Dog")
    assert waited == [0.04]


@pytest.mark.parametrize(
    ("backend", "path", "problem"),
    [
        ("mw", "/nowhere", "does not exist"),
        ("mw", "/content/tiny/A/Cat", "did not return JSON"),
        ("mw", "/broken", "answered 500"),
        ("kiwix", "/nowhere", "does not exist"),
    ],
)
def test_a_wrong_address_is_a_clear_error(url, backend, path, problem):
    pages = MediaWikiPages(url + path, 0) if backend == "mw" else KiwixPages("tiny", url + path)
    with pytest.raises(ServiceError, match=problem) as caught:
        pages.random_page(Random(0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backend", ["mw", "kiwix"])
def test_no_server_is_a_clear_error(backend):
    with socket.socket() as taken:  # bound but not listening: no answer
        taken.bind(("127.0.0.1", 0))
        env = WikiGame(backend=backend, trawler_kwargs={"url": f"http://127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(ServiceError, match=r"cannot be reached .* use backend='bundled'"):
            env.reset()


@pytest.mark.parametrize("answer", ["[]", "{}", '{"query": {"random": []}}', '{"query": 5}', "null"])
def test_answers_of_another_form(answer, monkeypatch):
    pages = MediaWikiPages(query_delay_ms=0)
    monkeypatch.setattr(pages, "_get", lambda url: (answer, url))
    for ask in (lambda: pages.random_page(Random(0)), lambda: pages.page("Cat")):
        with pytest.raises(ServiceError):
            ask()


def test_pages_without_links_are_not_starts(monkeypatch):
    env = WikiGame(backend="mw", trawler_kwargs={"query_delay_ms": 0})
    answer = {"query": {"random": [{"title": "X"}], "pages": [{"title": "X", "extract": ""}]}}
    monkeypatch.setattr(env.pages, "_get", lambda url: (json.dumps(answer), url))
    with pytest.raises(ServiceError, match="unusable"):
        env.reset()
