"""Pages of the wiki game from a server: the MediaWiki API of Wikipedia, or a local kiwix-serve."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html.parser import HTMLParser
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urldefrag, urlencode, urljoin
from urllib.request import ProxyHandler, Request, build_opener

from gem_core._util.checks import check_number, expected
from gem_core._util.foreign_json import read_json
from gem_core._util.urls import without_secrets
from gem_core.errors import ServiceError
from gem_envs._games.wiki_pages import Page
from gem_envs._proxies import proxy_for, via

_AGENT = "gem-core (text games for language models)"
_MOST_BYTES = 20_000_000
_MOST_PARTS = 20
"""Maximum number of responses to combine for the links of one page."""


class _Server:
    """Base class of both sources, with rate-limited and bounded requests."""

    def __init__(self, url: str, query_delay_ms: float, timeout_s: float) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise expected("url", url, "an address that begins with http:// or https://")
        self.url = url.rstrip("/")
        self.where = without_secrets(self.url)
        self.query_delay_ms = check_number("query_delay_ms", query_delay_ms, 0, 1e6)
        self.timeout_s = check_number("timeout_s", timeout_s, 0, 1e6)

    def _get(self, url: str) -> tuple[str, str] | None:
        """Return the text and the final address of a page; None if there is no such page.

        Raises:
            ServiceError: The server cannot be reached, or fails.
        """
        time.sleep(self.query_delay_ms / 1000)
        proxy = proxy_for(url)
        try:
            opener = build_opener(ProxyHandler(dict.fromkeys(("http", "https"), proxy) if proxy else {}))
            with opener.open(Request(url, headers={"User-Agent": _AGENT}), timeout=self.timeout_s) as answer:
                return answer.read(_MOST_BYTES).decode("utf-8", "replace"), answer.url
        except HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise ServiceError(f"{without_secrets(url)} answered {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise ServiceError(
                f"{self.where} cannot be reached{via(proxy)} ({error}); check the url, or use "
                "backend='bundled'"
            ) from error


class MediaWikiPages(_Server):
    """Pages through the API of a MediaWiki, with the extension TextExtracts, such as Wikipedia.

    Args:
        url: Address of ``api.php``.
        query_delay_ms: Pause before each request, in milliseconds.
        timeout_s: Request timeout in seconds.
    """

    def __init__(
        self,
        url: str = "https://en.wikipedia.org/w/api.php",
        query_delay_ms: float = 25,
        timeout_s: float = 10,
    ) -> None:
        super().__init__(url, query_delay_ms, timeout_s)

    def random_page(self, random: Random) -> Page:
        answer = self._query({"list": "random", "rnnamespace": 0, "rnlimit": 1})
        try:
            title = answer["query"]["random"][0]["title"]
        except (KeyError, IndexError, TypeError) as error:
            raise ServiceError(f"{self.where} returned no random page: {str(answer)[:200]}") from error
        page = self.page(title)
        if page is None:
            raise ServiceError(f"{self.where} returned the random page {title!r}, which does not exist")
        return page

    def page(self, title: str) -> Page | None:
        query: dict[str, Any] = {
            "titles": title, "redirects": 1, "prop": "extracts|links", "explaintext": 1, "exintro": 1,
            "pllimit": "max", "plnamespace": 0,
        }  # fmt: skip
        name, text = title, ""
        links: list[str] = []
        more: Mapping[str, Any] = {}
        for _ in range(_MOST_PARTS):
            answer = self._query({**query, **more})
            try:
                (page,) = answer["query"]["pages"]
                if page.get("missing") or page.get("invalid"):
                    return None
                name, text = page["title"], text or page.get("extract", "")
                links += [link["title"] for link in page.get("links", ())]
                more = answer.get("continue", {})
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ServiceError(
                    f"{self.where} returned no page for {title!r}: {str(answer)[:200]}"
                ) from error
            if not more:
                break
        return Page(name, text, tuple(dict.fromkeys(links)))

    def _query(self, query: Mapping[str, Any]) -> Any:
        url = f"{self.url}?{urlencode({'action': 'query', 'format': 'json', 'formatversion': 2, **query})}"
        answer = self._get(url)
        if answer is None:
            raise ServiceError(f"{self.where} does not exist (404); give the address of api.php")
        try:
            return read_json(answer[0])
        except ValueError as error:
            raise ServiceError(f"{self.where} did not return JSON; give the address of api.php") from error


class KiwixPages(_Server):
    """Pages of a ZIM file through kiwix-serve.

    Args:
        zimfile: Name of the ZIM file as the server lists it.
        url: Address of the server.
        query_delay_ms: Pause before each request, in milliseconds.
        timeout_s: Request timeout in seconds.
    """

    def __init__(
        self,
        zimfile: str = "wikipedia_en_simple_all_nopic",
        url: str = "http://localhost:8080",
        query_delay_ms: float = 0,
        timeout_s: float = 10,
    ) -> None:
        super().__init__(url, query_delay_ms, timeout_s)
        self._content = f"{self.url}/content/{quote(zimfile)}/"
        self._random = f"{self.url}/random?{urlencode({'content': zimfile})}"

    def random_page(self, random: Random) -> Page:
        answer = self._get(self._random)
        if answer is None:
            raise ServiceError(
                f"{self._random} does not exist (404); set zimfile to a name that the server lists"
            )
        return self._read(*answer)

    def page(self, title: str) -> Page | None:
        for folder in ("A/", ""):  # folder of the articles in older and in newer ZIM files
            answer = self._get(f"{self._content}{folder}{quote(title.replace(' ', '_'))}")
            if answer is not None:
                return self._read(*answer)
        return None

    def _read(self, html: str, url: str) -> Page:
        reader = _PageReader()
        reader.feed(html)
        titles = [self._title(urljoin(url, link)) for link in reader.links]
        own = self._title(url) or "".join(reader.heading).strip()
        links = dict.fromkeys(title for title in titles if title and title != own)
        return Page(own, " ".join("".join(reader.text).split()), tuple(links))

    def _title(self, url: str) -> str:
        """Return the title of the article at an address; "" if it is not an article of the ZIM file."""
        path = urldefrag(url).url
        if not path.startswith(self._content):
            return ""
        name = path[len(self._content) :].removeprefix("A/")
        if not name or name.startswith(("-/", "I/", "_")) or "?" in name:
            return ""
        return unquote(name).replace("_", " ")


class _PageReader(HTMLParser):
    """Reads the heading, the paragraphs, and the links of an article."""

    def __init__(self) -> None:
        super().__init__()
        self.heading: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("p", "h1", "style", "script"):
            self._inside = tag
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""
            self.text.append(" ")

    def handle_data(self, data: str) -> None:
        if self._inside == "p":
            self.text.append(data)
        elif self._inside == "h1":
            self.heading.append(data)
