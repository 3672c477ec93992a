"""Pages of the wiki game, and the bundled encyclopedia, their default source."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random
from typing import Protocol

from gem_envs._games.data import read_lines

_LINK = re.compile(r"\[\[(.+?)\]\]")


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: Title of the page.
        text: Content as plain text.
        links: Titles of the linked pages, in the order of the text, without duplicates.
    """

    title: str
    text: str
    links: tuple[str, ...]


class Pages(Protocol):
    """Interface of a source of pages."""

    def page(self, title: str) -> Page | None:
        """Return the page with a title; None if there is no such page."""

    def random_page(self, random: Random) -> Page:
        """Return a random page; a server may draw it with its own generator."""


class BundledPages:
    """A small encyclopedia of over 400 pages, each of which is reachable from every other."""

    def page(self, title: str) -> Page | None:
        return _pages().get(title)

    def random_page(self, random: Random) -> Page:
        pages = _pages()
        return pages[random.choice(tuple(pages))]


@lru_cache(maxsize=512)
def distances(target: str) -> dict[str, int]:
    """Return the number of steps from each bundled page to `target`."""
    return _search(target, _origins())


@lru_cache(maxsize=2048)
def within(start: str, most_steps: int) -> tuple[str, ...]:
    """Return the bundled pages at 2 to `most_steps` steps from `start` (at 1 step if `most_steps` is 1)."""
    away = _search(start, {title: page.links for title, page in _pages().items()})
    min_steps = min(2, most_steps)
    return tuple(title for title, steps in away.items() if min_steps <= steps <= most_steps)


def _search(first: str, links: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the number of steps from `first` to each page, in order of discovery."""
    distances = {first: 0}
    border = deque([first])
    while border:
        title = border.popleft()
        for link in links[title]:
            if link not in distances:
                distances[link] = distances[title] + 1
                border.append(link)
    return distances


@cache
def _pages() -> dict[str, Page]:
    pages = {}
    for line in read_lines("encyclopedia.txt"):
        title, _, text = line.partition("\t")
        links = tuple(dict.fromkeys(_LINK.findall(text)))
        pages[title] = Page(title, _LINK.sub(r"\1", text), links)
    return pages


@cache
def _origins() -> dict[str, list[str]]:
    """Return, for each page, the pages that link to it."""
    origins: dict[str, list[str]] = {title: [] for title in _pages()}
    for page in _pages().values():
        for link in page.links:
            origins[link].append(page.title)
    return origins
