"""Generate the small encyclopedia of the wiki game from the tables of facts in tools/encyclopedia.

    python tools/make_encyclopedia.py > gem_envs/_games/data/encyclopedia.txt

Each line contains a title, a tab, and a text, in which [[Title]] is a link. A page about one thing links to
the things that it mentions, and a page about a kind links to the members of the kind, so every page can be
reached from every other page.
"""

from __future__ import annotations

import sys
from pathlib import Path

TABLES = Path(__file__).parent / "encyclopedia"


class Book:
    """Pages of the encyclopedia, and the titles of the pages of each kind."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.members: dict[str, list[str]] = {}

    def add(self, title: str, text: str, *kinds: str) -> None:
        """Add a page, and list it on the pages of `kinds`."""
        if title in self.pages:
            raise ValueError(f"two pages have the title {title}")
        self.pages[title] = text
        for kind in kinds:
            self.members.setdefault(kind, []).append(title)

    def write(self) -> None:
        """Write all pages to stdout."""
        for title, text in sorted(self.pages.items()):
            listed = self.members.get(title)
            more = f" See also: {links(listed)}." if listed else ""
            sys.stdout.write(f"{title}\t{text}{more}\n")


def rows(table: str) -> list[list[str]]:
    """Return the fields of each line."""
    lines = (TABLES / f"{table}.txt").read_text().splitlines()
    return [[field.strip() for field in line.split("|")] for line in lines if not line.startswith("#")]


def links(names: list[str]) -> str:
    """Return a list of names as links."""
    return ", ".join(f"[[{name}]]" for name in names)


def main() -> None:
    """Create and write the encyclopedia."""
    book = Book()
    speakers: dict[str, list[str]] = {}
    for name, continent, capital, language, neighbors, fact in rows("countries"):
        text = f"{name} is a country in [[{continent}]]. Its capital is [[{capital}]], and its language is "
        near = links([neighbor.strip() for neighbor in neighbors.split(",")])
        book.add(name, f"{text}[[{language}]]. {fact}. Near it: {near}.", continent)
        book.add(capital, f"{capital} is a [[City]], the capital of [[{name}]] in [[{continent}]].", "City")
        speakers.setdefault(language, []).append(name)
    for name, kind, home, food, fact in rows("animals"):
        article = "An" if name[0] in "AEIOU" else "A"
        text = f"{article} {name.lower()} is an animal of the kind [[{kind}]]. Home: [[{home}]]. "
        book.add(name, f"{text}Food: {food}. {fact}.", kind, home)
    for name, kind, country, fact in rows("plants"):
        text = f"{name}: kind [[{kind}]]. It came first from [[{country}]] or near it. {fact}."
        book.add(name, text, kind, country)
    for name, field, country, century, fact in rows("people"):
        text = f"{name} worked in [[{field}]] in [[{country}]] in the {century} century. {fact}."
        book.add(name, text, field, country)
    for name, kind, fact in rows("things"):
        book.add(name, f"{name}: kind [[{kind}]]. {fact}.", kind)
    for language, countries in sorted(speakers.items()):
        book.add(language, f"{language} is a [[Language]] of {links(countries)}.", "Language")
    for kind, text, *listed in rows("kinds"):
        more = "".join(f" See {links(names.split(', '))}." for names in listed)
        book.add(kind, text + more)
    book.write()


if __name__ == "__main__":
    main()
